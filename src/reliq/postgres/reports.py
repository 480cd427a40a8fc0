"""Reports: written in the transactions of their jobs, read piece by piece."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from reliq.domain.report import Part, Progress
from reliq.domain.text import storable
from reliq.postgres.failures import translated
from reliq.postgres.pool import Connection
from reliq.postgres.queries import query

FETCH = 1_000
"""Jobs that one statement brings."""


async def begin_report(connection: Connection, report_id: int, name: str, chunks: int) -> None:
    """Write in the transaction of `connection` that a report is being made of so many chunks."""
    with translated():
        await connection.execute(query("insert_report").text, report_id, name, chunks)


async def write_part(connection: Connection, report_id: int, part: Part) -> bool:
    """
    Write one piece in the transaction of `connection`: it is there once, or that is rolled back.

    False: the report has come to its end, and nothing was written.
    """
    place, content = (report_id, part.chunk, part.part), storable(part.content)
    with translated():
        statement = query("insert_report_part").text
        return bool(await connection.fetch(statement, *place, part.rows, content))


async def end_report(connection: Connection, report_id: int) -> Mapping[str, Any] | None:
    """
    Find in the transaction of `connection` whether a report is ready: its state, rows, chunks, reason.

    None: it has come to its end before.
    """
    with translated():
        row = await connection.fetchrow(query("end_report").text, report_id)
    return None if row is None else dict(row)


async def place_report(connection: Connection, report_id: int, file: str) -> None:
    """Write in the transaction of `connection` where the content went, and drop the pieces."""
    with translated():
        await connection.execute(query("place_report").text, report_id, storable(file))


async def read_parts(connection: Connection | asyncpg.Pool, report_id: int) -> AsyncIterator[Part]:
    """Read a report in the order of its content, one piece in memory at a time."""
    chunk = part = -1
    while True:
        with translated():
            row = await connection.fetchrow(query("next_report_part").text, report_id, chunk, part)
        if row is None:
            return
        yield (found := Part(*row.values()))
        chunk, part = found.chunk, found.part


async def span_of_jobs(connection: Connection) -> tuple[int, int, datetime]:
    """Tell the first and the last number of all jobs (1 and 0 if there is none), and the time."""
    with translated():
        [row] = await connection.fetch(query("find_job_ids").text)
    return (row["first"] or 1, row["last"] or 0, row["now"])


async def ended_jobs(
    connection: Connection, first: int, last: int, since: datetime, until: datetime
) -> AsyncIterator[asyncpg.Record]:
    """Read the jobs of a range of numbers that ended from `since` to before `until`."""
    while first <= last:
        with translated():
            rows = await connection.fetch(
                query("report_jobs").text, first, last, since, until, FETCH
            )
        for row in rows:
            yield row
        first = rows[-1]["id"] + 1 if len(rows) == FETCH else last + 1


@dataclass(frozen=True, slots=True)
class PostgresReports:
    """Fits `ports.Reports`: no call keeps a connection."""

    pool: asyncpg.Pool

    async def find(self, report_id: int) -> Progress | None:
        """Tell how far a report is; None if nobody asked for it."""
        with translated():
            row = await self.pool.fetchrow(query("find_report").text, report_id)
        return None if row is None else Progress(**row)

    async def parts(self, report_id: int) -> AsyncIterator[Part]:
        """Read a report in the order of its content."""
        async for part in read_parts(self.pool, report_id):
            yield part
