"""
What a worker has in hand: every job it claimed and whose settlement is not yet written.

Two threads share it. The main loop runs handlers; the second loop (`second_loop.py`) renews
leases and may find one lost. So each attempt carries its own clockwork on the machine's
monotonic clock, which both threads read alike, and a cut is handed over with
`call_soon_threadsafe`: the second loop never waits for the first, which may be blocked.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import anyio
from anyio import CancelScope

from reliq.domain.job import Claim, Fence, JobId

HEARD_MAX: Final = 20_000
"""Claims remembered: more than can run within a lease."""


class Cut(Enum):
    """Why an attempt was stopped from outside."""

    LOST = auto()
    """The lease is gone, or cannot be known to be ours: another worker may run the job."""
    TIMED_OUT = auto()
    """It ran for longer than its kind may."""
    STOPPED = auto()
    """The worker is stopping: hand the job back."""
    CANCELLED = auto()
    """Somebody wants the job to be cancelled."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """
    One claimed job, from the claim's reply to the settlement.

    `lease_until_s` never lies behind the database's own end of the lease, because it counts
    from before the claim or renewal was sent. At `time_up_s` the
    handler's time is up: it is stopped, and its lease not renewed, so that one that hangs beyond
    it cannot hold its job for ever.
    """

    claim: Claim
    lease_until_s: float
    renewed_at_s: float
    started_at_s: float = field(default_factory=time.monotonic)
    time_up_s: float = float("inf")
    scope: CancelScope = field(default_factory=CancelScope)
    cut: Cut | None = None
    is_settling: bool = False
    """Its settlement is on the way or written: a renewal that misses it has not lost it."""
    is_in_transaction: bool = False
    """The handler is inside `job.transaction()`, or its end is on the way."""
    is_settled: bool = False
    is_cancelled: bool = False
    """Its job is to be cancelled: its lease is not lengthened any more, but ends."""
    is_lost: bool = False
    """It was said to be lost: keeper and settler may both find out."""
    ended_at_s: float | None = None
    where: str | None = None
    """The line of the handler that raised, as `shop.py:12 in send_receipt`."""
    no_outcome: str | None = None
    """The type of what the handler returned, where that is no Outcome."""
    thread_ended: anyio.Event | None = None
    """Set when the thread of a plain function has really ended, also after it was abandoned."""

    def stop(self, why: Cut) -> None:
        """Cancel the handler; call it in the main loop only. The first reason stays."""
        if self.cut is None:
            self.cut = why
            self.scope.cancel()


class Hand:
    """The attempts of one worker, safe to use from both loops."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lease_s: float) -> None:
        self._loop = loop
        self._lease_s = lease_s
        self._lock = threading.Lock()
        self._attempts: dict[JobId, Attempt] = {}
        self._heard: deque[tuple[JobId, Fence]] = deque(maxlen=HEARD_MAX)

    def take(self, claims: Sequence[Claim], asked_at_s: float) -> list[Attempt]:
        """
        Hold jobs whose claim was sent at `asked_at_s` on the monotonic clock.

        A job that is still in hand was claimed anew because its lease had ended: the old
        attempt is stopped. Call it in the main loop only.
        """
        scope = type(CancelScope())  # to find out which is this loop's takes longer than to make it
        lease_until_s, started_at_s = asked_at_s + self._lease_s, now_s()
        attempts = [
            Attempt(
                claim=claim, lease_until_s=lease_until_s, renewed_at_s=asked_at_s,
                started_at_s=started_at_s, scope=scope(),
            )
            for claim in claims
        ]  # fmt: skip
        with self._lock:
            old = [
                self._attempts[claim.job_id] for claim in claims if claim.job_id in self._attempts
            ]
            self._heard += [claim.held for claim in claims]
            self._attempts.update((attempt.claim.job_id, attempt) for attempt in attempts)
        for attempt in old:
            attempt.stop(Cut.LOST)
        return attempts

    def drop(self, attempts: Sequence[Attempt]) -> None:
        """Let go: settled, or lost."""
        with self._lock:
            for attempt in attempts:
                if self._attempts.get(attempt.claim.job_id) is attempt:
                    del self._attempts[attempt.claim.job_id]

    def attempts(self) -> list[Attempt]:
        """List what is held now."""
        with self._lock:
            return list(self._attempts.values())

    def heard(self) -> list[tuple[JobId, Fence]]:
        """List what this worker holds, and its newest claims that it let go of."""
        with self._lock:
            return [*self._heard, *(attempt.claim.held for attempt in self._attempts.values())]

    def renewed(self, attempt: Attempt, asked_at_s: float) -> None:
        """Lengthen a lease from the moment its renewal was sent."""
        attempt.renewed_at_s = asked_at_s
        attempt.lease_until_s = asked_at_s + self._lease_s

    def lose(self, attempt: Attempt) -> None:
        """Let go of a job that is not ours any more, and stop its handler; from any thread."""
        self.drop([attempt])
        self._loop.call_soon_threadsafe(attempt.stop, Cut.LOST)

    def cancel(self, attempt: Attempt) -> None:
        """Stop the handler of a job that is to be cancelled; from any thread."""
        attempt.is_cancelled = True
        self._loop.call_soon_threadsafe(attempt.stop, Cut.CANCELLED)


def now_s() -> float:
    """Read the machine's monotonic clock, the same in every thread."""
    return time.monotonic()
