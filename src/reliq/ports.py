"""
What the receiver, the worker and the operator's commands need of a store.

One small protocol per reader; the only adapter is `reliq.postgres`. A method answers with
values for every expected ending, and raises `StoreUnavailable` when the database did not
answer in time: what was asked may or may not have happened.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from reliq.domain.endpoint import Endpoint
from reliq.domain.event import Duplicate, Stored
from reliq.domain.family import Family
from reliq.domain.job import Claim, Enqueued, Fence, JobId, Kind, NewJob
from reliq.domain.outcome import Settlement
from reliq.domain.report import Part, Progress

Held = tuple[JobId, Fence]
"""A job under one lease: what every write of a running job names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """A verified delivery, ready to be stored; `body` is what was received, byte for byte."""

    source: str
    dedup_key: str | None
    headers: Mapping[str, str]
    body: bytes
    parse_error: str | None
    jobs: Sequence[NewJob]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """What the reaper did about one lease that had ended."""

    job_id: JobId
    kind: Kind
    fence: Fence
    dead: bool
    alert_id: JobId | None


@dataclass(frozen=True, slots=True)
class Settled:
    """What a batch of settlements came to: jobs whose lease was lost, alerts that were made."""

    lost: frozenset[JobId]
    alerts: Mapping[JobId, JobId]


@dataclass(frozen=True, slots=True)
class Reservation:
    """
    What asking for an effect came to.

    `new`; `unknown`, where who was at it before never said how it ended; `done`, with the
    `result`; `taken`, where the job `holder` is at it; `lost`, where our own lease is over.
    """

    answer: Literal["new", "unknown", "done", "taken", "lost"]
    holder: JobId | None = None
    result: Any = None


class Inbox(Protocol):
    """What the receiver needs: to store, and to know whether it could."""

    async def store_event(self, event: NewEvent) -> Stored | Duplicate:
        """Commit the event with all its jobs, or find the event it repeats."""
        ...

    async def why_not_ready(self) -> str | None:
        """None when the database answers with the schema this version needs, else why not."""
        ...


class Reports(Protocol):
    """What the receiver needs to hand out reports."""

    async def find(self, report_id: int) -> Progress | None:
        """Tell how far a report is; None if nobody asked for it."""
        ...

    def parts(self, report_id: int) -> AsyncIterator[Part]:
        """Read a report in the order of its content, one piece in memory at a time."""
        ...


class Queue(Protocol):
    """What claims and settles; the kinds and policies of the App are the adapter's own."""

    async def claim_jobs(self, places: int, rooms: Mapping[str, int]) -> Sequence[Claim]:
        """Lease at most `places` due jobs to this worker, of a queue in `rooms` so many at most."""
        ...

    async def settle_jobs(self, settlements: Sequence[tuple[Claim, Settlement]]) -> Settled:
        """Write the settlements of jobs that are still ours."""
        ...

    async def isolate_job(self, claim: Claim) -> bool:
        """Record that a suspect runs alone from now on; False when its lease is lost."""
        ...

    async def hand_back_unheard(self, heard: Sequence[Held]) -> Sequence[JobId]:
        """Give back, untried, what this worker claimed without hearing of it."""
        ...

    async def follow_up(self) -> None:
        """Do what follows an ending and was not done, because a worker died in between."""
        ...

    async def find_cancelled(self, held: Sequence[Held]) -> frozenset[JobId]:
        """Tell which of the jobs that are held here somebody wants to be cancelled."""
        ...

    async def find_unknown_kinds(self) -> Mapping[str, int]:
        """Name the kinds that have due jobs and no handler here."""
        ...

    def transaction(self, claim: Claim, told: Sequence[str]) -> AbstractAsyncContextManager[Any]:
        """Open a transaction that commits only together with the job's success, and its result."""
        ...

    async def reserve_effect(self, claim: Claim, key: str) -> Reservation:
        """Say that a job is about to do something outside, or learn what is known of it."""
        ...

    async def finish_effect(self, claim: Claim, key: str, result_json: str) -> bool:
        """Remember that it is done; False when lease or reservation are not ours any more."""
        ...

    async def release_effect(self, claim: Claim, key: str) -> bool:
        """Forget that a job began it, for it was not done; False as above."""
        ...

    async def fan_out(self, connection: Any, parent: JobId, family: Family) -> int:
        """Make a job's children in a transaction, once; answer how many were made."""
        ...

    async def end_open_families(self) -> Mapping[JobId, JobId]:
        """Make the final jobs that are due, by parent."""
        ...


class Leases(Protocol):
    """What the keeper needs."""

    async def renew_leases(self, held: Sequence[Held]) -> Mapping[JobId, bool]:
        """
        Lengthen leases; a job that is not returned is lost.

        True stands beside one that is to be cancelled, whose lease is no longer lengthened.
        """
        ...


class Reaper(Protocol):
    """What the reaper needs."""

    async def reap_jobs(self) -> Sequence[Reaped]:
        """Give back or bury the jobs whose lease has ended, one bounded batch."""
        ...

    async def check_reaper(self) -> None:
        """Make sure that no running job lies before the reaper's mark."""
        ...


class Slots(Protocol):
    """What the scheduler needs."""

    async def database_now(self) -> datetime:
        """Ask the database for its time."""
        ...

    async def enqueue_job(self, job: NewJob) -> Enqueued:
        """Put one job into the queue, once per kind and key."""
        ...


class Pruner(Protocol):
    """What keeping house needs."""

    async def take_turn(self, lasts: timedelta) -> bool:
        """Ask whether to prune is ours now; then it is nobody else's for so long."""
        ...

    async def prune(self) -> Mapping[str, int]:
        """Delete what was kept for long enough, in bounded batches; count what went."""
        ...


class Endpoints(Protocol):
    """What a delivery to somebody else's endpoint needs."""

    async def find(self, name: str, job_id: JobId) -> Endpoint | None:
        """Say where a job's endpoint is and how to sign now; None where there is none."""
        ...

    async def delivered(self, endpoint: Endpoint, held: Held) -> None:
        """Write down that it answered well, unless the job is no longer ours."""
        ...

    async def undelivered(self, endpoint: Endpoint, held: Held, *, gone: str | None) -> str | None:
        """Write down that it did not, unless the job is no longer ours; why, if that disabled it."""
        ...


class Stores(Protocol):
    """What handlers ask of the tables beside their own job: `job.stores`."""

    @property
    def endpoints(self) -> Endpoints:
        """Where outgoing webhooks go."""
        ...
