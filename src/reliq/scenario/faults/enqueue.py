"""More jobs, while something else goes on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.model.steps import Enqueue


@asynccontextmanager
async def harm(what: Enqueue, scene: Scene) -> AsyncIterator[Bite]:
    """Make them."""
    await scene.senders.enqueue(what)
    yield Bite("queue", what.count * what.copies)
