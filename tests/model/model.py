"""
What the queue's SQL does, as a small program: no SQL, no concurrency, time stands still.

One method for each shipped statement, with the statement's name, its arguments and its answer.
Read it as the short form of `reliq/postgres/sql`: who may change a job, and what changes.

- Only `claim_jobs` makes a job `running`. It raises the fence and counts the attempt.
- A worker names (id, fence). What no longer names a running job's own fence changes nothing.
- Only `reap_jobs` takes a job from a silent worker, and only once its lease is over.
- A job ends once. What a person wants to run again is a new job.
- A job that is to be cancelled never goes back to the queue, and its lease gets no longer.

The machine in `machine.py` makes the same calls here and in Postgres and compares all rows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import count
from operator import attrgetter
from typing import Any

Held = tuple[int, int]
"""The id of a job and the fence it was claimed under."""

Lane = tuple[str, int]
Position = tuple[datetime, int]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ALERT_KEY_TTL = timedelta(days=35)
UNTRIED = ("again", "handed_back")
"""An attempt that ended like this is given back."""


@dataclass(slots=True, kw_only=True)
class Job:
    """A row of `reliq.jobs`; the fields are the columns."""

    id: int
    kind: str
    key: str
    payload: Mapping[str, Any]
    queue: str
    priority: int
    run_at: datetime
    created_at: datetime
    event_id: int | None = None
    attempts_max: int = 8
    state: str = "queued"
    attempt: int = 0
    fence: int = 0
    lost_leases: int = 0
    alone: bool = False
    worker: str | None = None
    claimed_at: datetime | None = None
    lease_until: datetime | None = None
    reap_at: datetime | None = None
    finished_at: datetime | None = None
    last_error: str | None = None
    dead_reason: str | None = None
    requeued_from: int | None = None
    requeued_by: str | None = None
    requeue_reason: str | None = None
    cancel_requested_at: datetime | None = None
    cancel_requested_by: str | None = None
    cancel_reason: str | None = None

    @property
    def ready(self) -> bool:
        return self.state == "queued"

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    @property
    def is_unwanted(self) -> bool:
        return self.cancel_requested_at is not None

    @property
    def position(self) -> Position:
        return self.run_at, self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A row of `reliq.attempts`: every attempt but the one that succeeded."""

    job_id: int
    fence: int
    attempt: int
    kind: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    ended: str
    buried: bool = False
    error: str | None = None
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A row of `reliq.events`."""

    id: int
    source: str
    dedup_key: str | None
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Key:
    """Who holds a key, and how long."""

    holder: int
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The job a caller wants."""

    kind: str
    payload: Mapping[str, Any]
    key: str | None = None
    run_in: timedelta = timedelta(0)
    queue: str = "default"
    priority: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """How an attempt ended whose job goes back to the queue."""

    after: timedelta
    ended: str
    error: str | None = None
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Burial:
    """How an attempt ended whose job is dead."""

    reason: str
    error: str
    ended: str = "failed"
    status: int | None = None

    @property
    def fingerprint(self) -> str:
        return self.error[:2]


@dataclass(slots=True)
class Model:
    """The tables, and what the statements do to them."""

    now: datetime
    alert_window: timedelta
    overlap: timedelta
    jobs: dict[int, Job] = field(default_factory=dict)
    attempts: dict[Held, Attempt] = field(default_factory=dict)
    events: dict[int, Event] = field(default_factory=dict)
    job_keys: dict[tuple[str, str], Key] = field(default_factory=dict)
    event_keys: dict[tuple[str, str], Key] = field(default_factory=dict)
    walked_to: datetime = EPOCH
    _job_ids: Iterator[int] = field(default_factory=lambda: count(1))

    def store_event(
        self, source: str, dedup_key: str | None, key_ttl: timedelta, wishes: Sequence[Wish]
    ) -> tuple[int, bool, int]:
        """An event comes with all its jobs; one that was stored before makes nothing."""
        held = self.event_keys.get((source, dedup_key or ""))
        if held is not None and held.expires_at > self.now:
            return held.holder, True, 0
        event_id = len(self.events) + 1
        self.events[event_id] = Event(
            id=event_id, source=source, dedup_key=dedup_key, received_at=self.now
        )
        if dedup_key is not None:
            self.event_keys[source, dedup_key] = Key(event_id, self.now + key_ttl)
        places: Counter[str] = Counter()
        made = 0
        for wish in wishes:
            key = wish.key
            if key is None:
                places[wish.kind] += 1
                key = f"event:{event_id}:{wish.kind}:{places[wish.kind]}"
            _, duplicate = self._enqueue(wish, key, key_ttl, event_id)
            made += not duplicate
        return event_id, False, made

    def enqueue_job(self, wish: Wish, key_ttl: timedelta) -> tuple[int, bool]:
        """One job per kind and key, for as long as the key is kept."""
        return self._enqueue(wish, wish.key, key_ttl)

    def _enqueue(
        self, wish: Wish, key: str | None, key_ttl: timedelta, event_id: int | None = None
    ) -> tuple[int, bool]:
        job_id = next(self._job_ids)
        held = None if key is None else self.job_keys.get((wish.kind, key))
        if held is not None and held.expires_at > self.now:
            return held.holder, True
        if key is not None:
            self.job_keys[wish.kind, key] = Key(job_id, self.now + key_ttl)
        self.jobs[job_id] = Job(
            id=job_id, kind=wish.kind, key=f"job:{job_id}" if key is None else key,
            payload=wish.payload, queue=wish.queue, priority=wish.priority, event_id=event_id,
            run_at=self.now + wish.run_in, created_at=self.now,
        )  # fmt: skip
        return job_id, False

    def find_lanes(self) -> list[Lane]:
        """Where queued jobs are, due or not."""
        return sorted({(job.queue, job.priority) for job in self.jobs.values() if job.ready})

    def claim_jobs(
        self, places: int, lease: timedelta, worker: str,
        lanes: Sequence[tuple[Lane, Position]], attempts_max: Mapping[str, int],
    ) -> list[Job]:  # fmt: skip
        """Due jobs of known kinds, lane after lane, the oldest of a lane first."""
        found: list[Job] = []
        for lane, after in lanes:
            due = [
                job
                for job in self.jobs.values()
                if job.ready and (job.queue, job.priority) == lane and job.kind in attempts_max
                and job.run_at <= self.now and job.position > after
            ]  # fmt: skip
            found += sorted(due, key=lambda job: job.position)
        for job in found[:places]:
            job.state, job.worker, job.alone = "running", worker, False
            job.fence += 1
            job.attempt += 1
            job.attempts_max = attempts_max[job.kind]
            job.claimed_at = self.now
            job.lease_until = job.reap_at = self.now + lease
        return found[:places]

    def _mine(self, held: Iterable[Held]) -> list[Job]:
        """The jobs that still run under these very leases; every write of a worker asks this."""
        return [
            job
            for job_id, fence in held
            if (job := self.jobs[job_id]).is_running and job.fence == fence
        ]

    def renew_leases(self, held: Sequence[Held], lease: timedelta) -> list[tuple[int, bool]]:
        """Leases that are held and have not ended last longer; `reap_at` may stay behind, it is a hint."""
        for job in (mine := [job for job in self._mine(held) if job.lease_until > self.now]):
            if not job.is_unwanted:
                job.lease_until = self.now + lease
        return [(job.id, job.is_unwanted) for job in mine]

    def isolate_job(self, held: Held, lease: timedelta) -> list[int]:
        """The job runs with nothing beside it from now on."""
        mine = [
            job for job in self._mine([held]) if not job.is_unwanted and job.lease_until > self.now
        ]
        for job in mine:
            job.alone = True
            job.lease_until = self.now + lease
        return [job.id for job in mine]

    def cancel_jobs(self, ids: Iterable[int], by: str, reason: str) -> list[tuple[int, str | None]]:
        """What waits is cancelled; what runs is marked, once; what has ended stays as it is."""
        asked = sorted(set(ids))
        for job in (self.jobs[each] for each in asked if each in self.jobs):
            if (job.ready or job.is_running) and not job.is_unwanted:
                job.cancel_requested_at = self.now
                job.cancel_requested_by, job.cancel_reason = by, reason
            if job.ready:
                job.state, job.finished_at = "cancelled", self.now
        return [(each, self.jobs[each].state if each in self.jobs else None) for each in asked]

    def find_cancelled(self, held: Sequence[Held]) -> list[int]:
        """What is still held and is to be cancelled."""
        return [job.id for job in self._mine(held) if job.is_unwanted]

    def settle_succeeded(self, held: Sequence[Held]) -> list[int]:
        """Done. Lease and `reap_at` stay as they are: nobody looks at them again."""
        for job in (mine := self._mine(held)):
            job.state, job.finished_at, job.lost_leases = "succeeded", self.now, 0
        return [job.id for job in mine]

    def settle_queued(self, endings: Mapping[Held, Back]) -> list[int]:
        """Back to the queue, due later; a worker that stops says nothing about the job."""
        for job in (mine := self._mine(endings)):
            end = endings[job.id, job.fence]
            job.last_error = job.last_error if end.error is None else end.error
            self._record(job, end.ended, error=end.error, status=end.status)
            self._to_queue(job, end.after)
            job.attempt -= end.ended in UNTRIED
            if end.ended != "handed_back":
                job.lost_leases = 0
        return [job.id for job in mine]

    def settle_dead(self, endings: Mapping[Held, Burial]) -> list[tuple[int, int | None]]:
        """Dead, with the reason, and with an alert for each new error."""
        mine = self._mine(endings)
        for job in mine:
            end = endings[job.id, job.fence]
            job.state, job.finished_at, job.lost_leases = "dead", self.now, 0
            job.dead_reason, job.last_error = end.reason, end.error
            self._record(job, end.ended, error=end.error, status=end.status, buried=True)
        prints = {job.id: endings[job.id, job.fence].fingerprint for job in mine}
        mine.sort(key=lambda job: (job.kind, prints[job.id], job.id))
        return [(job.id, self._raise_alert(job, prints[job.id])) for job in mine]

    def reap_jobs(self) -> list[tuple[int, str, int, str | None, bool, int | None]]:
        """A lease that is over costs its attempt; the third in a row alone is poison."""
        lost: list[Job] = []
        for job in self.jobs.values():
            if not job.is_running or job.reap_at > self.now:
                continue
            if job.lease_until > self.now:
                job.reap_at = job.lease_until
                continue
            lost.append(job)
            poison = job.alone and job.lost_leases >= 2
            spent = job.attempt >= job.attempts_max
            poison, spent = poison and not job.is_unwanted, spent and not job.is_unwanted
            job.last_error = f"the worker {job.worker} fell silent and its lease ended"
            self._record(job, "lease_lost", error=job.last_error, buried=poison or spent)
            self._to_queue(job, timedelta(0))
            job.lost_leases += 1
            if poison or spent:
                job.state, job.finished_at = "dead", self.now
                job.dead_reason = "poison" if poison else "attempts"
        self.walked_to = self.now - self.overlap
        lost.sort(key=lambda job: (job.kind, job.id))
        return [
            (
                job.id, job.kind, job.fence, job.worker, job.state == "dead",
                self._raise_alert(job, "lease_lost") if job.state == "dead" else None,
            )
            for job in lost
        ]  # fmt: skip

    def hand_back_unheard(self, worker: str, heard: Sequence[Held]) -> list[int]:
        """What a worker's name is on, and the worker has not heard of, goes back untried."""
        unheard = [
            job
            for job in self.jobs.values()
            if job.is_running and job.worker == worker and (job.id, job.fence) not in heard
        ]
        for job in unheard:
            self._record(job, "handed_back")
            self._to_queue(job, timedelta(0))
            job.attempt -= 1
        return [job.id for job in unheard]

    def requeue_job(
        self, job_id: int, by: str, reason: str
    ) -> list[tuple[str, int | None, bool | None, None, None]]:
        """One new job per dead letter; the dead letter stays as it is. Nobody ignores any here."""
        if (dead := self.jobs.get(job_id)) is None:
            return []
        if dead.state != "dead":
            return [(dead.state, None, None, None, None)]
        new_id = next(self._job_ids)  # Postgres takes a number before it finds the first one
        for job in self.jobs.values():
            if job.requeued_from == job_id:
                return [("dead", job.id, False, None, None)]
        self.jobs[new_id] = Job(
            id=new_id, kind=dead.kind, key=dead.key, payload=dead.payload, queue=dead.queue,
            priority=dead.priority, event_id=dead.event_id, attempts_max=dead.attempts_max,
            run_at=self.now, created_at=self.now,
            requeued_from=job_id, requeued_by=by, requeue_reason=reason,
        )  # fmt: skip
        return [("dead", new_id, True, None, None)]

    def _to_queue(self, job: Job, after: timedelta) -> None:
        """Unless somebody wants it to be cancelled."""
        job.state, job.run_at = "queued", self.now + after
        job.lease_until = job.reap_at = None
        if job.is_unwanted:
            job.state, job.finished_at = "cancelled", self.now

    def _record(self, job: Job, ended: str, **more: Any) -> None:
        self.attempts[job.id, job.fence] = Attempt(
            job_id=job.id, fence=job.fence, attempt=job.attempt, kind=job.kind, worker=job.worker,
            started_at=job.claimed_at, ended_at=self.now, ended=ended, **more,
        )  # fmt: skip

    def _raise_alert(self, dead: Job, fingerprint: str) -> int | None:
        """One alert per kind, error and window of time; an alert that dies makes none."""
        if dead.kind == "alert":
            return None
        window = int(self.now.timestamp() // self.alert_window.total_seconds())
        payload = {
            "job_id": dead.id, "kind": dead.kind, "reason": dead.dead_reason,
            "attempt": dead.attempt, "error": dead.last_error,
        }  # fmt: skip
        wish = Wish(
            kind="alert", payload=payload, key=f"{dead.kind}:{fingerprint}:{window}",
        )  # fmt: skip
        job_id, duplicate = self.enqueue_job(wish, ALERT_KEY_TTL)
        return None if duplicate else job_id

    def tables(self) -> dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]:
        """Write the rows of each table by primary key, the columns in the fields' order."""
        return {
            "jobs": {(job.id,): (*_JOB(job), job.ready) for job in self.jobs.values()},
            "attempts": {held: _ATTEMPT(attempt) for held, attempt in self.attempts.items()},
            "events": {(event.id,): _EVENT(event) for event in self.events.values()},
            "job_keys": {
                key: (*key, held.holder, held.expires_at) for key, held in self.job_keys.items()
            },
            "event_keys": {
                key: (*key, held.holder, held.expires_at) for key, held in self.event_keys.items()
            },
            "reaper": {(True,): (True, self.walked_to)},
        }


_JOB, _ATTEMPT, _EVENT = (
    attrgetter(*(each.name for each in fields(table))) for table in (Job, Attempt, Event)
)
