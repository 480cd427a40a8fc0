"""Cancel jobs, inside the caller's transaction or in one of its own."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import asyncpg

from reliq.domain.job import JobId, State
from reliq.domain.text import storable
from reliq.errors import RequestRefused
from reliq.postgres.failures import translated
from reliq.postgres.pool import Connection
from reliq.postgres.queries import query

WALK: Final = 1_000
"""Jobs that one statement looks at, and at most so many that one cancels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Which jobs that wait or run: of a kind, a queue, a group, made of late; None does not ask."""

    kind: str | None = None
    queue: str | None = None
    group_key: str | None = None
    since: timedelta | None = None


async def cancel(
    connection: Connection | asyncpg.Pool, job_id: JobId | int, *, by: str, reason: str = ""
) -> State:
    """
    Cancel a job through `connection` (an asyncpg connection or pool), and tell its state then.

    `CANCELLED`: it waited, and never runs. `RUNNING`: its worker is told to stop the handler, and the
    job becomes `cancelled`, unless the handler comes to its end first; it is not run again.
    `SUCCEEDED` and `DEAD`: too late. `by` is who asks and `reason` why, for those who look at the
    job later. In a transaction of yours commit soon: the worker of a running job waits for it.

    Raises:
        RequestRefused: there is no such job, or `by` is empty.
        StoreUnavailable: the database did not answer; the job may or may not be cancelled.

    """
    states = await cancel_jobs(connection, [JobId(job_id)], by=by, reason=reason)
    if (state := states[JobId(job_id)]) is None:
        raise RequestRefused(f"there is no job {job_id}")
    return state


async def cancel_jobs(
    connection: Connection | asyncpg.Pool, ids: Sequence[JobId], *, by: str, reason: str
) -> Mapping[JobId, State | None]:
    """Do the same for several; None stands beside a number that no job has."""
    if not by.strip():
        raise RequestRefused("nothing is cancelled for nobody: say who asks, in `by`")
    with translated():
        text = query("cancel_jobs").text
        rows = await connection.fetch(text, ids, storable(by), storable(reason))
    return {row["id"]: None if row["state"] is None else State(row["state"]) for row in rows}


async def cancel_all(
    pool: asyncpg.Pool, which: Open, *, by: str, reason: str, only_count: bool = False
) -> Counter[State | None]:
    """
    Cancel all of a filter, batch by batch, and count them by the state that each was in then.

    Those that run are asked for one by one: whoever holds one running job's row must not wait for
    another's, or their worker would wait for both with its renewals.
    """
    states, after = Counter[State | None](), 0
    filters = (which.kind, which.queue, which.group_key, which.since)
    while True:
        with translated():
            rows = await pool.fetch(query("find_open").text, after, WALK, *filters)
        if not rows:
            return states
        after = rows[-1]["id"]
        waiting = [row["id"] for row in rows if row["fits"] and row["state"] == State.QUEUED]
        running = [row["id"] for row in rows if row["fits"] and row["state"] == State.RUNNING]
        if only_count:
            states += Counter({State.CANCELLED: len(waiting), State.RUNNING: len(running)})
            continue
        for ids in (waiting, *([job_id] for job_id in running)):
            states.update((await cancel_jobs(pool, ids, by=by, reason=reason)).values())
