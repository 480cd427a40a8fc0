"""Cancel jobs, inside the caller's transaction or in one of its own."""

from collections.abc import Mapping, Sequence

import asyncpg

from reliq.domain.job import JobId, State
from reliq.domain.text import storable
from reliq.errors import RequestRefused
from reliq.postgres.failures import translated
from reliq.postgres.pool import Connection
from reliq.postgres.queries import query


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
