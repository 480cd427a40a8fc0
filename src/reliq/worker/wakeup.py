"""
When to look for jobs again: the poll is the truth, a notification only a hint.

The poll is spread, so that workers started together do not ask together.
"""

import random
from dataclasses import dataclass, field

import anyio

from reliq.worker.places import first_of


@dataclass(slots=True, kw_only=True)
class Wakeup:
    """`poll_s` is the longest pause between two looks of an idle worker, in seconds."""

    poll_s: float
    dice: random.Random
    _hint: anyio.Event = field(default_factory=anyio.Event)

    def ring(self) -> None:
        """Say that there may be a job; call it in the main loop."""
        self._hint.set()

    async def next(self, or_when: anyio.Event) -> None:
        """Wait for a hint, for the poll, or for the event."""
        with anyio.move_on_after(self.poll_s * self.dice.uniform(0.8, 1.0)):
            await first_of(self._hint, or_when)
        self._hint = anyio.Event()
