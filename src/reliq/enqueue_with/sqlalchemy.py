"""Enqueue through SQLAlchemy, by Core or by the ORM, whatever driver is below it."""

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from reliq.domain.job import Enqueued, NewJob
from reliq.domain.sealed import Sealer
from reliq.postgres.enqueue import enqueue_answer, enqueue_statement


def enqueue(
    connection: Connection | Session, job: NewJob, *, sealing: Sealer | None = None
) -> Enqueued:
    """
    Put one job into the queue, in the transaction of `connection`, which may be a session.

    Raises:
        ValueError: the tables can never take the job; nothing was sent.

    """
    statement, parameters = enqueue_statement(job, "named", sealing=sealing)
    return enqueue_answer(connection.execute(text(statement), parameters).one())


async def enqueue_async(
    connection: AsyncConnection | AsyncSession, job: NewJob, *, sealing: Sealer | None = None
) -> Enqueued:
    """Do the same on an asynchronous connection or session."""
    statement, parameters = enqueue_statement(job, "named", sealing=sealing)
    return enqueue_answer((await connection.execute(text(statement), parameters)).one())
