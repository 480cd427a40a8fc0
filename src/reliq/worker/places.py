"""The places of a worker: how many jobs it may run at once, and how many it runs."""

from dataclasses import dataclass, field

import anyio


@dataclass(slots=True)
class Places:
    """Counts attempts; a claim never asks for more than `free`."""

    total: int
    taken: int = 0
    _changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def free(self) -> int:
        """How many jobs may be claimed now."""
        return self.total - self.taken

    def enter(self) -> None:
        """Take a place."""
        self.taken += 1

    def leave(self) -> None:
        """Give a place back."""
        self.taken -= 1
        self._changed.set()
        self._changed = anyio.Event()

    async def some_free(self, or_when: anyio.Event) -> None:
        """Wait for a free place, or for the event."""
        while self.free <= 0 and not or_when.is_set():
            await first_of(self._changed, or_when)

    async def all_free(self, or_when: anyio.Event | None = None) -> None:
        """Wait until nothing runs, or for the event."""
        while self.taken and not (or_when and or_when.is_set()):
            await first_of(self._changed, *([or_when] if or_when else []))


async def first_of(*events: anyio.Event) -> None:
    """Wait until one of the events is set."""
    async with anyio.create_task_group() as tasks:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait, event)
