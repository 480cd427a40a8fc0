"""Enqueue through psycopg 3, whatever kind of cursors and rows the connection makes."""

from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import tuple_row

from reliq.domain.job import Enqueued, NewJob
from reliq.domain.sealed import Sealer
from reliq.postgres.enqueue import enqueue_answer, enqueue_statement


def enqueue(connection: Connection[Any], job: NewJob, *, sealing: Sealer | None = None) -> Enqueued:
    """
    Put one job into the queue, in the transaction of `connection`.

    Raises:
        ValueError: the tables can never take the job; nothing was sent.

    """
    statement, parameters = enqueue_statement(job, "pyformat", sealing=sealing)
    with Cursor(connection, row_factory=tuple_row) as cursor:
        return enqueue_answer(cursor.execute(statement, parameters).fetchone())


async def enqueue_async(
    connection: AsyncConnection[Any], job: NewJob, *, sealing: Sealer | None = None
) -> Enqueued:
    """Do the same on an asynchronous connection."""
    statement, parameters = enqueue_statement(job, "pyformat", sealing=sealing)
    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(statement, parameters)
        return enqueue_answer(await cursor.fetchone())
