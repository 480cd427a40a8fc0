"""More deliveries, while something else goes on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.model.steps import Deliver


@asynccontextmanager
async def harm(what: Deliver, scene: Scene) -> AsyncIterator[Bite]:
    """Send them, and go on when their senders are content."""
    await scene.senders.deliver(what)
    yield Bite("receiver", what.count * what.copies)
