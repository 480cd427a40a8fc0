"""A signal to processes; a STOP is undone by a CONT."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.model.steps import Signal


@asynccontextmanager
async def harm(what: Signal, scene: Scene) -> AsyncIterator[Bite]:
    """Send it; hits are the processes that were there to get it."""
    processes, to = scene.stage.processes, scene.named(what.to)
    hit = processes.signal(to, what.sig)
    yield Bite(",".join(hit) or to, len(hit), {"sig": what.sig}, lasts=what.sig == "STOP")
    if what.sig == "STOP":
        for name in hit:
            processes.signal(name, "CONT")
