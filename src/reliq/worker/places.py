"""The places of a worker: how many jobs it may run at once, and how many it runs."""

from dataclasses import dataclass, field
from typing import Final

import anyio

FEW: Final = 20
LINGER_S: Final = 0.005
"""A claim costs the server half a millisecond, however few jobs it brings."""


@dataclass(slots=True)
class Places:
    """
    Counts attempts; a claim never asks for more than `free`.

    A place is `taken` for as long as its code runs; the attempt is `running` until it has
    ended. The two differ for a plain function beyond its time limit: its attempt is over, and
    its thread cannot be stopped. `rooms` are the places that jobs of some queues may still take,
    where that is fewer than all.
    """

    total: int
    rooms: dict[str, int] = field(default_factory=dict)
    taken: int = 0
    running: int = 0
    _changed: anyio.Event | None = None
    """Only there while somebody waits for it: most changes are seen by nobody."""

    @property
    def free(self) -> int:
        """How many jobs may be claimed now."""
        return self.total - self.taken

    def enter(self, queue: str) -> None:
        """Take a place for an attempt."""
        self.taken += 1
        self.running += 1
        if queue in self.rooms:
            self.rooms[queue] -= 1

    def end(self) -> None:
        """Note that an attempt is over."""
        self.running -= 1
        self._change()

    def leave(self, queue: str) -> None:
        """Give a place back."""
        self.taken -= 1
        if queue in self.rooms:
            self.rooms[queue] += 1
        self._change()

    def _change(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _next_change(self) -> anyio.Event:
        if self._changed is None:
            self._changed = anyio.Event()
        return self._changed

    @property
    def share(self) -> int:
        """
        How many to claim at once: while one half of many runs, the other is being claimed.

        Half of a few would be more claims, each for next to nothing.
        """
        return self.total if self.total < FEW else self.total // 2

    async def some_free(self, or_when: anyio.Event) -> None:
        """Wait for a free place, and a moment longer for a quarter of all; or for the event."""
        while self.free <= 0 and not or_when.is_set():
            await first_of(self._next_change(), or_when)
        with anyio.move_on_after(LINGER_S):
            while self.free < self.total // 4 and not or_when.is_set():
                await first_of(self._next_change(), or_when)

    async def all_ended(self, or_when: anyio.Event | None = None) -> None:
        """Wait until no attempt runs, or for the event."""
        while self.running and not (or_when and or_when.is_set()):
            await first_of(self._next_change(), *([or_when] if or_when else []))


async def first_of(*events: anyio.Event) -> None:
    """Wait until one of the events is set."""
    async with anyio.create_task_group() as tasks:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait, event)
