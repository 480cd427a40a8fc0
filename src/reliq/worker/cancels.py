"""
Stop the handlers of jobs that are to be cancelled, as soon as a notification says that there are.

A hint makes the worker look at the rows of what it holds, which alone decide. One that is lost costs
time and nothing else: the renewal of a lease, in the second loop, tells the same.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Never

import anyio

from reliq.errors import StoreError
from reliq.ports import Queue
from reliq.worker.hand import Hand


@dataclass(slots=True, kw_only=True)
class Cancels:
    """`ring` from the main loop, while `run` runs there as a task."""

    hand: Hand
    queue: Queue
    _hint: anyio.Event = field(default_factory=anyio.Event)

    def ring(self) -> None:
        """Say that a job may have to be cancelled."""
        self._hint.set()

    async def run(self) -> Never:
        """Look once for each hint, or for several that came during a look."""
        while True:
            await self._hint.wait()
            self._hint = anyio.Event()
            with suppress(StoreError):
                await self._look()

    async def _look(self) -> None:
        if not (held := {attempt.claim.held: attempt for attempt in self.hand.attempts()}):
            return
        cancelled = await self.queue.find_cancelled(list(held))
        for (job_id, _), attempt in held.items():
            if job_id in cancelled:
                self.hand.cancel(attempt)
