"""Release all held processes of a role at one instant."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reliq.scenario.faults.kind import Bite, Scene


@asynccontextmanager
async def harm(what: str, scene: Scene) -> AsyncIterator[Bite]:
    """Let them go on."""
    hit = scene.stage.processes.signal(what, "CONT")
    yield Bite(what, len(hit))
