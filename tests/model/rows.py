"""
The tables as the model has them: a class for each, whose fields are the columns.

`TABLES` is all that the comparison knows of them. A table that is new is a class here, a line
there and a field of `Rows`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import count
from operator import attrgetter
from typing import Any

Held = tuple[int, int]
"""The id of a job and the fence it was claimed under."""

Lane = tuple[str, int]
Position = tuple[datetime, int]
Row = tuple[Any, ...]

Tables = dict[str, dict[Row, Row]]
"""Each table's rows by primary key."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ALERT_PLACES = 2
"""Fewer than are shipped, so that they are soon taken."""


@dataclass(slots=True, kw_only=True)
class Job:
    """A row of `reliq.jobs`."""

    id: int
    kind: str
    key: str
    payload: Mapping[str, Any]
    queue: str
    priority: int
    run_at: datetime
    created_at: datetime
    event_id: int | None = None
    group_key: str | None = None
    parent_id: int | None = None
    attempts_max: int = 8
    state: str = "queued"
    blocked: bool = False
    attempt: int = 0
    fence: int = 0
    lost_leases: int = 0
    alone: bool = False
    worker: str | None = None
    claimed_at: datetime | None = None
    lease_until: datetime | None = None
    reap_at: datetime | None = None
    finished_at: datetime | None = None
    result: Mapping[str, Any] | None = None
    last_error: str | None = None
    dead_reason: str | None = None
    requeued_from: int | None = None
    requeued_by: str | None = None
    requeue_reason: str | None = None
    first_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    cancel_requested_by: str | None = None
    cancel_reason: str | None = None

    @property
    def ready(self) -> bool:
        return self.state == "queued" and not self.blocked

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    @property
    def is_open(self) -> bool:
        return self.state in ("queued", "running")

    @property
    def is_unwanted(self) -> bool:
        return self.cancel_requested_at is not None

    @property
    def lane(self) -> Lane:
        return self.queue, self.priority

    @property
    def position(self) -> Position:
        return self.run_at, self.id


@dataclass(slots=True, kw_only=True)
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
    fingerprint: str | None = None
    ignored_at: datetime | None = None
    ignored_by: str | None = None
    ignore_reason: str | None = None

    @property
    def ignored(self) -> str | None:
        return None if self.ignored_at is None else f"{self.ignored_by}: {self.ignore_reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A row of `reliq.events`."""

    id: int
    source: str
    dedup_key: str | None
    received_at: datetime


@dataclass(frozen=True, slots=True)
class JobKey:
    """A row of `reliq.job_keys`: who holds a key, and how long."""

    scope: str
    key: str
    job_id: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class EventKey:
    """A row of `reliq.event_keys`."""

    source: str
    key: str
    event_id: int
    expires_at: datetime


@dataclass(slots=True)
class Reaper:
    """The one row of `reliq.reaper`."""

    one: bool = True
    walked_to: datetime = EPOCH


@dataclass(slots=True)
class Group:
    """A row of `reliq.job_groups`: whom all others wait for, until they have ended."""

    key: str
    heads: list[int] = field(default_factory=list)
    running: int = 1


@dataclass(slots=True, kw_only=True)
class Parent:
    """A row of `reliq.parents`: a job that has fanned out, and what follows."""

    job_id: int
    children: int
    on_failure: str
    fanned_out_at: datetime
    then_kind: str
    then_payload: Mapping[str, Any]
    then_run_in: timedelta
    then_queue: str
    then_priority: int
    walked_to: int = 0
    finished_at: datetime | None = None


@dataclass(slots=True)
class Effect:
    """A row of `reliq.effect_keys`."""

    key: str
    job_id: int
    fence: int
    reserved_at: datetime
    done_at: datetime | None = None
    result: Mapping[str, Any] | None = None


@dataclass(slots=True, kw_only=True)
class Limit:
    """A row of `reliq.limits`."""

    queue: str
    max_running: int | None = None
    rate: float | None = None
    burst: int = 1
    opens_after: int | None = None
    open_for: timedelta = timedelta(minutes=1)
    tokens: float = 1.0
    filled_at: datetime = EPOCH
    failures: int = 0
    open_until: datetime | None = None
    probe_id: int | None = None
    probe_fence: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A row of `reliq.limit_places`: which job fills a place, if it still does."""

    queue: str
    place: int
    job_id: int
    fence: int


@dataclass(slots=True)
class AlertPlace:
    """A row of `reliq.alert_places`: the window of time whose alert took it last."""

    place: int
    taken_in: int = -1


@dataclass(slots=True)
class Pause:
    """A row of `reliq.pauses`."""

    scope: str
    name: str
    by: str
    reason: str
    at: datetime


@dataclass(slots=True)
class Rows:
    """Every table, by primary key, and the time."""

    now: datetime
    alert_window: timedelta
    overlap: timedelta
    jobs: dict[int, Job] = field(default_factory=dict)
    attempts: dict[Held, Attempt] = field(default_factory=dict)
    events: dict[int, Event] = field(default_factory=dict)
    job_keys: dict[tuple[str, str], JobKey] = field(default_factory=dict)
    event_keys: dict[tuple[str, str], EventKey] = field(default_factory=dict)
    reaper: dict[bool, Reaper] = field(default_factory=lambda: {True: Reaper()})
    job_groups: dict[str, Group] = field(default_factory=dict)
    parents: dict[int, Parent] = field(default_factory=dict)
    effect_keys: dict[str, Effect] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)
    limit_places: dict[tuple[str, int], Place] = field(default_factory=dict)
    pauses: dict[tuple[str, str], Pause] = field(default_factory=dict)
    alert_places: dict[int, AlertPlace] = field(
        default_factory=lambda: {place: AlertPlace(place) for place in range(1, ALERT_PLACES + 1)}
    )
    job_ids: Iterator[int] = field(default_factory=lambda: count(1))
    event_ids: Iterator[int] = field(default_factory=lambda: count(1))

    def mine(self, held: Held) -> Job | None:
        """The job that still runs under this very lease; every write of a worker asks this."""
        job_id, fence = held
        job = self.jobs.get(job_id)
        return job if job is not None and job.is_running and job.fence == fence else None

    def holds(self, held: Held) -> bool:
        """Whether the job still runs, under a lease that has not ended."""
        job = self.mine(held)
        return job is not None and job.lease_until is not None and job.lease_until > self.now

    def made_of(self, job_id: int) -> int | None:
        """The job that was made of a dead letter, if there is one."""
        return next((job.id for job in self.jobs.values() if job.requeued_from == job_id), None)

    def tables(self) -> Tables:
        """Write all rows the way Postgres gives them."""
        found: Tables = {}
        for name, table in TABLES.items():
            rows = map(table.read, getattr(self, name).values())
            found[name] = {row[: table.key]: row for row in rows}
        return found


class Table:
    """
    The columns of a table, of which the first `key` are its primary key.

    `also` are columns that follow from others, and `sets` are arrays whose order says nothing.
    """

    def __init__(
        self, row: type, key: int = 1, *, also: tuple[str, ...] = (), sets: tuple[str, ...] = ()
    ) -> None:
        self.key = key
        columns = [*(each.name for each in fields(row)), *also]
        self.read = attrgetter(*columns)
        self.columns = [
            f"array(select unnest({each}) order by 1)" if each in sets else each for each in columns
        ]


TABLES = {
    "jobs": Table(Job, also=("ready",)),
    "attempts": Table(Attempt, 2),
    "events": Table(Event),
    "job_keys": Table(JobKey, 2),
    "event_keys": Table(EventKey, 2),
    "reaper": Table(Reaper),
    "job_groups": Table(Group, sets=("heads",)),
    "parents": Table(Parent),
    "effect_keys": Table(Effect),
    "limits": Table(Limit),
    "limit_places": Table(Place, 2),
    "pauses": Table(Pause, 2),
    "alert_places": Table(AlertPlace),
}
