"""Start a process: one that was to be started by a step, or the next incarnation of one that ended."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.stage.processes import base

READY_S = 20.0


@asynccontextmanager
async def harm(what: str, scene: Scene) -> AsyncIterator[Bite]:
    """Start it, and wait until it is ready; one that is up is left alone, and nothing was hit."""
    name = base(scene.named(what))
    if scene.stage.processes.is_up(name):
        yield Bite(name)
        return
    with anyio.fail_after(READY_S):
        await scene.stage.start(name)
    yield Bite(name, 1)
