"""
Schedules, and which of their slots must be in the queue at a given moment.

A slot is one planned instant of a schedule. Its key is the schedule's id and the instant in
UTC, `report@2026-11-29T08:00:00Z`, so that an hour that occurs twice on the wall is two slots
with two names. Any number of workers may ask `due_slots` at any time and enqueue the answer:
the unique index over keys lets the first through. Nothing is remembered between calls; what
was enqueued before is known by its key, and by nothing else.

What happens to slots that nobody enqueued in time (`missed`):

- `latest`: only the newest one runs, however many were missed. It runs late, but it runs, as
  long as it is younger than `age_max`. So a 09:00 job missed until 09:40 still runs that day,
  and by the default of 24 hours also until 09:00 of the next.
- `all`: every one younger than `age_max` runs; at most `SLOTS_MAX` of them.
- `none`: a slot is taken up within `tolerance` of its instant or never.

With `latest` and `all` a schedule that is deployed for the first time finds slots that lie in
its past and runs them, `latest` exactly one; who does not want that gives `since`, the moment
from which the schedule counts, or sets `missed="none"`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

from reliq.domain.fields import check_duration, check_field, check_type, check_whole
from reliq.domain.job import NewJob, Payload, check_name
from reliq.domain.text import storable_json
from reliq.domain.when import Every, When

Missed = Literal["latest", "all", "none"]

SLOTS_MAX: Final = 1_000
"""Slots that one call returns at most, the newest."""

AGE_MAX_MAX: Final = timedelta(days=34)
"""The largest `age_max`: a slot must be too old a day before its key (35 days) is forgotten."""

PRIORITY_LAST: Final = 9
TOLERANCE_DEFAULT: Final = timedelta(seconds=90)

_ID: Final = re.compile(r"[^\s@]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One planned instant of a schedule, in UTC."""

    schedule_id: str
    at: datetime

    @property
    def key(self) -> str:
        """Name the slot, as `heartbeat@2026-11-29T10:00:00Z`."""
        return f"{self.schedule_id}@{self.at.isoformat().replace('+00:00', 'Z')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """
    A job of `kind` for every slot of `when`.

    `id` names the schedule in its keys and is its kind unless given; whoever renames it makes
    a new schedule. A slot of age `age_max` or more is dropped.

    Raises:
        ValueError: a value cannot work; the message says which, and what to write.

    """

    kind: str
    when: When
    id: str = ""
    payload: Payload = field(default_factory=dict)
    queue: str | None = None
    priority: int | None = None
    missed: Missed = "latest"
    age_max: timedelta = timedelta(hours=24)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", self.id or self.kind)
        where = f"schedule {self.id!r}"
        is_named = all(isinstance(name, str) for name in (self.kind, self.id))
        if not (is_named and self.kind and _ID.fullmatch(self.id) and self.id.isprintable()):
            raise ValueError(
                f"{where} of kind {self.kind!r}: name both, "
                "in at most 200 printable characters without spaces and '@'"
            )
        is_rule = all(callable(getattr(self.when, name, None)) for name in ("between", "most"))
        is_rule = is_rule and not isinstance(self.when, type)
        check_field(f"{where}: when", self.when, "Every, Daily or Cron", is_right=is_rule)
        if self.queue is not None:
            check_name(f"{where}: queue", self.queue)
        if self.priority is not None:
            check_whole(f"{where}: priority", self.priority, 0, PRIORITY_LAST)
        check_type(f"{where}: payload", self.payload, dict, Mapping)
        check_duration(f"{where}: age_max", self.age_max)
        if self.missed not in get_args(Missed):
            raise ValueError(f"{where}: missed={self.missed!r}: use one of 'latest', 'all', 'none'")
        if self.age_max > AGE_MAX_MAX:
            raise ValueError(
                f"{where}: age_max={self.age_max}: use more than 0 and at most {AGE_MAX_MAX}, "
                "because an older slot's key may be forgotten and the slot would run again"
            )
        if self.missed == "all" and (most := self.when.most(self.age_max)) > SLOTS_MAX:
            raise ValueError(
                f"{where}: missed='all' may find {most} slots within age_max={self.age_max}, "
                f"more than {SLOTS_MAX}: shorten age_max, or use 'latest'"
            )
        try:
            storable_json(self.payload)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    def job(self, slot: Slot) -> NewJob:
        """Return the job of one slot, unique by the slot's key."""
        return NewJob(
            kind=self.kind,
            payload=self.payload,
            key=slot.key,
            queue=self.queue,
            priority=self.priority,
        )


def due_slots(
    schedule: Schedule,
    *,
    now: datetime,
    since: datetime | None = None,
    tolerance: timedelta = TOLERANCE_DEFAULT,
) -> list[Slot]:
    """
    Return the slots that must be in the queue at `now`, oldest first; most are there already.

    Only slots after `since` count, where it is given. `tolerance` matters to `missed="none"`:
    it must be longer than the longest pause between two calls, else slots fall in between.

    Raises:
        ValueError: `now` or `since` has no zone.

    """
    now = _utc(now, "now")
    oldest = now - (tolerance if schedule.missed == "none" else schedule.age_max)
    if since is not None:
        oldest = max(oldest, _utc(since, "since"))
    if schedule.missed == "all":
        instants = schedule.when.between(oldest, now)[-SLOTS_MAX:]
    else:
        instants = _newest(schedule.when, oldest, now)
    return [Slot(schedule_id=schedule.id, at=instant) for instant in instants]


def check_ids(schedules: Sequence[Schedule]) -> None:
    """
    Refuse schedules that share an id: one's slots would pass for the other's.

    Raises:
        ValueError: naming every id that occurs twice.

    """
    twice = [name for name, count in Counter(s.id for s in schedules).items() if count > 1]
    if twice:
        raise ValueError(f"schedules share the id {', '.join(map(repr, twice))}: give each its own")


def _newest(when: When, after: datetime, until: datetime) -> list[datetime]:
    # Looks back in growing steps, so that a dense schedule is not listed a day long for one slot.
    back = timedelta(minutes=when.minutes) if isinstance(when, Every) else timedelta(hours=1)
    while until - back > after:
        if instants := when.between(until - back, until):
            return instants[-1:]
        back *= 4
    return when.between(after, until)[-1:]


def _utc(moment: datetime, name: str) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"{name}={moment.isoformat()} has no zone: pass an instant, as in UTC")
    return moment.astimezone(UTC)
