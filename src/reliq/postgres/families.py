"""Write the children of a job, and find the families that have no open child left."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from reliq.domain.family import Family, check_family
from reliq.domain.job import JobId
from reliq.domain.sealed import Sealer
from reliq.postgres.enqueue import copy_jobs
from reliq.postgres.failures import translated
from reliq.postgres.pool import Connection
from reliq.postgres.queries import query

CHUNK: Final = 1_000
"""Children in one statement."""

FAMILIES: Final = 1_000
"""Unfinished families that one statement looks at."""

Fetch = Callable[..., Coroutine[Any, Any, list[Any]]]


async def fan_out(
    connection: Connection, parent: JobId, family: Family, sealing: Sealer | None = None
) -> int:
    """
    Make a job's children in the transaction of `connection`; answer how many were made.

    That is 0 where an earlier call has made them: its row in `parents` came with them.
    """
    payload, then, children = check_family(family, sealing), family.then, family.children
    with translated():
        async with connection.transaction():
            is_first = await connection.fetch(
                query("insert_parent").text, parent, len(children), family.on_failure,
                then.kind, payload, then.run_in, *then.lane,
            )  # fmt: skip
            if not is_first:
                return 0
            for start in range(0, len(children), CHUNK):
                await copy_jobs(connection, children[start : start + CHUNK], sealing, parent)
            if not children:  # nobody's end will ask
                await connection.fetch(query("end_families").text, [parent])
    return len(children)


async def end_open_families(fetch: Fetch) -> dict[JobId, JobId]:
    """Ask for every unfinished family; answer the parents of those that ended with the final job."""
    ended: dict[JobId, JobId] = {}
    after = JobId(0)
    while parents := [row["parent_id"] for row in await fetch("find_families", after, FAMILIES)]:
        rows: Sequence[Any] = await fetch("end_families", parents)
        ended |= {JobId(row["parent_id"]): JobId(row["job_id"]) for row in rows}
        after = parents[-1]
    return ended
