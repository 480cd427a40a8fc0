"""
A job, from the wish to have one to its last state.

A job moves along this table and no other way; every move out of `running` names the
fence under which the job was claimed, so that a worker whose lease is gone moves nothing:

| from      | move                    | to        |
|-----------|-------------------------|-----------|
| `queued`  | claim                   | `running` |
| `running` | settle: done            | `succeeded` |
| `running` | settle: retry, again    | `queued`  |
| `running` | settle: hand back       | `queued`  |
| `running` | settle: bury            | `dead`    |
| `running` | reap (lease is over)    | `queued` or `dead` |
| `queued`  | cancel                  | `cancelled` |
| `running` | cancel (asked for)      | `running`: where it would go back to `queued`, it is `cancelled` |
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from types import NoneType
from typing import Any, Final, NamedTuple, NewType

from reliq.domain.fields import check_field
from reliq.domain.payload import Fields, plain
from reliq.domain.sealed import Sealer
from reliq.domain.text import storable, storable_json

JobId = NewType("JobId", int)
EventId = NewType("EventId", int)
Fence = NewType("Fence", int)
Kind = NewType("Kind", str)
WorkerName = NewType("WorkerName", str)

Payload = Mapping[str, Any]

QUEUE_DEFAULT: Final = "default"
PRIORITY_DEFAULT: Final = 5
"""Priorities run from 0 (first) to 9 (last)."""

PRIORITY_LAST: Final = 9

NAME_BYTES_MAX: Final = 200
"""Bytes of a kind or a queue: they stand in index entries, which end at 2,704 bytes."""

GROUP_BYTES_MAX: Final = 512

GROUP_RUNNING_MAX: Final = 1_000
"""The heads of a group stand in one row, and are looked up at every end of one."""

RUN_IN_MAX: Final = timedelta(days=3_660)
"""The longest delay; a typing error, where it is longer."""


class State(StrEnum):
    """Where a job is; waiting for a retry is `queued` with a later `run_at`."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


FINAL: Final = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """
    The wish to have a job.

    `payload` is a dict of JSON, or an instance of a dataclass or a pydantic model.
    `key` makes it unique among jobs of its kind for as long as keys are kept (35 days by
    default), and must not be of the form that reliq makes up for events' jobs of that kind,
    `event:<number>:<kind>:…`; `run_in` is the delay from now, by the database's clock. `queue`
    and `priority` are those of the kind's policy where the App is known (`App.checked`), and else
    the defaults. Of the jobs of one `group_key` no more than `group_running` run, or wait for a retry,
    at one time; they start in the order they were enqueued in. The number given last counts.
    """

    kind: str
    payload: Fields = field(default_factory=dict)
    key: str | None = None
    run_in: timedelta = timedelta(0)
    queue: str | None = None
    priority: int | None = None
    group_key: str | None = None
    group_running: int = 1

    @property
    def lane(self) -> tuple[str, int]:
        """The queue and the priority that it goes to."""
        return (
            QUEUE_DEFAULT if self.queue is None else self.queue,
            PRIORITY_DEFAULT if self.priority is None else self.priority,
        )


_TYPES: Final[tuple[tuple[str, tuple[type, ...]], ...]] = (
    ("kind", (str,)),
    ("key", (str, NoneType)),
    ("run_in", (timedelta,)),
    ("queue", (str, NoneType)),
    ("priority", (int, NoneType)),
    ("group_key", (str, NoneType)),
    ("group_running", (int,)),
)


_MADE_UP: Final = re.compile(r"event:[0-9]+:(.*)", re.DOTALL)
"""Keys of jobs of events that got none from their source."""


@lru_cache(maxsize=1_000)
def is_name(text: str, bytes_max: int = NAME_BYTES_MAX) -> bool:
    """Tell whether a text can name a kind, a queue or a group."""
    return storable(text) == text and 0 < len(text.encode()) <= bytes_max


def check_name(where: str, name: object) -> None:
    """Refuse, as a ValueError, what cannot name a kind or a queue."""
    is_right = isinstance(name, str) and is_name(name)
    check_field(where, name, f"1 to {NAME_BYTES_MAX} bytes of plain text", is_right=is_right)


def check_job(job: object, sealing: Sealer | None = None) -> str:
    """
    Return a job's payload as it is stored, sealed or not, if the tables will take the job.

    A source's code may have made anything of it.

    Raises:
        ValueError: it can never be stored; the message names the field and its bounds.

    """
    if not isinstance(job, NewJob):
        raise ValueError(f"a job is a NewJob, not {type(job).__name__}")  # noqa: TRY004
    for name, allowed in _TYPES:
        if not isinstance(value := getattr(job, name), allowed):
            raise ValueError(  # noqa: TRY004 - one error for all that is wrong with a job
                f"the {name} of a job is {allowed[0].__name__}, not {type(value).__name__}"
            )
    queue, priority = job.lane
    for name, text in (("kind", job.kind), ("queue", queue)):
        if not is_name(text):
            raise ValueError(
                f"the {name} of a job is 1 to {NAME_BYTES_MAX} bytes of plain text, "
                f"not {text[:NAME_BYTES_MAX]!r}"
            )
    if job.group_key is not None or job.group_running != 1:
        _check_group(job)
    if job.key is not None and _is_made_up(job.key, job.kind):
        raise ValueError(
            f"the key {job.key[:NAME_BYTES_MAX]!r} is of the form that reliq makes up for jobs of "
            "events: begin it with a word of your own"
        )
    if not 0 <= priority <= PRIORITY_LAST:
        raise ValueError(f"priority is 0 (first) to {PRIORITY_LAST} (last), not {priority}")
    if not timedelta(0) <= job.run_in <= RUN_IN_MAX:
        raise ValueError(f"run_in is a delay of 0 to {RUN_IN_MAX.days} days, not {job.run_in}")
    # Nearly all are a dict, and to ask an abstract class takes long.
    is_plain = isinstance(job.payload, dict | Mapping)
    stored = storable_json(job.payload if is_plain else plain(job.payload))
    return stored if sealing is None else sealing.seal(stored)


def _check_group(job: NewJob) -> None:
    if job.group_key is not None and not is_name(job.group_key, GROUP_BYTES_MAX):
        raise ValueError(
            f"the group_key of a job is 1 to {GROUP_BYTES_MAX} bytes of plain text, "
            f"not {job.group_key[:NAME_BYTES_MAX]!r}"
        )
    if not 1 <= job.group_running <= (GROUP_RUNNING_MAX if job.group_key else 1):
        raise ValueError(
            "group_running is how many of a group_key may run at one time, "
            f"1 to {GROUP_RUNNING_MAX}, not {job.group_running} of {job.group_key!r}"
        )


def _is_made_up(key: str, kind: str) -> bool:
    """
    Could reliq give this key to a job of `kind`? Then the job it is meant for would be lost.

    The kind counts: keys of slots and alerts begin with names of the user's, perhaps `event:7`.
    """
    found = _MADE_UP.fullmatch(key)
    return found is not None and found[1].startswith(f"{kind}:")


@dataclass(frozen=True, slots=True)
class Inserted:
    """The job is new."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class DuplicateOf:
    """A job of this kind and key exists already (or existed: keys outlive jobs)."""

    job_id: JobId


Enqueued = Inserted | DuplicateOf


_decode: Final = json.JSONDecoder().raw_decode
"""Of what Postgres writes, which is valid and has nothing around it: `loads` looks for that."""


class Claim(NamedTuple):
    """
    One job under one lease; a tuple, which is made in a third of a frozen dataclass's time.

    `attempt` counts from 1 and includes this one; `lost_leases` counts the attempts in a
    row that ended without a word from their worker, before this one.
    """

    job_id: JobId
    fence: Fence
    kind: Kind
    key: str
    payload_json: str
    attempt: int
    attempts_max: int
    lost_leases: int
    event_id: EventId | None
    waited: timedelta
    group_key: str | None = None
    queue: str = QUEUE_DEFAULT
    parent_id: JobId | None = None

    @property
    def payload(self) -> Payload:
        """
        Decode the payload, anew at every call.

        Raises:
            ValueError, RecursionError: jsonb holds more than Python reads, as in deep nesting.

        """
        payload: Payload = _decode(self.payload_json)[0]
        return payload

    @property
    def held(self) -> tuple[JobId, Fence]:
        """The pair that every write of this attempt names."""
        return self.job_id, self.fence

    @property
    def is_suspect(self) -> bool:
        """Has it lost its worker twice in a row? Then it must run with nothing beside it."""
        return self.lost_leases >= SUSPECT_AFTER


SUSPECT_AFTER: Final = 2
"""Lost leases in a row after which a job runs alone; one more, while alone, is poison."""
