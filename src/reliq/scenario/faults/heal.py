"""The end of another step's harm."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reliq.scenario.faults.kind import Bite, Scene


@asynccontextmanager
async def harm(what: str, scene: Scene) -> AsyncIterator[Bite]:
    """Undo it."""
    scene.heal(what)
    yield Bite(what, 1)
