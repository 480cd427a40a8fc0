"""
oban (Python): claims in batches; completions in one transaction a batch, one UPDATE each.

A queue of 100 jobs at a time; limits from 20 to 2000 were within 15 % of it. Single enqueues have
connections in autocommit, which saves two round trips each: a quarter more for one client.
Finished jobs stay, as by default. A completion names the time of its claim, so it is refused when
another worker has the job by then.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar, Final

import oban
import psycopg
from oban import Job, Oban
from oban.schema import install
from protocol import About, Enqueue, EnqueueMany, Handle, Payload, Peer, Start, serve
from psycopg_pool import AsyncConnectionPool

LIMIT: Final = 100
POOL: Final = 4

ABOUT: Final = About(
    name="oban",
    version=oban.__version__,
    keeps_finished=True,
    fenced=True,
    settings=f"psycopg (binary), one queue of limit {LIMIT}, pool {POOL}, enqueues in autocommit, uvloop",
)


@oban.worker()
class Noop:
    """The handler; oban makes one of these for each job, so `handle` is the class's."""

    handle: ClassVar[Handle]

    async def process(self, job: Job) -> None:
        """Hand the payload on."""
        Noop.handle(job.args)


@asynccontextmanager
async def connect(
    dsn: str, connections: int, *, autocommit: bool = False
) -> AsyncIterator[AsyncConnectionPool]:
    """Hold so many connections in a pool."""
    async with AsyncConnectionPool(
        dsn,
        min_size=connections,
        max_size=connections,
        open=False,
        kwargs={"autocommit": autocommit},
    ) as pool:
        await pool.wait()
        yield pool


async def setup(dsn: str) -> None:
    """Make the tables."""
    async with connect(dsn, 1) as pool:
        await install(pool)


@asynccontextmanager
async def clients(dsn: str, count: int) -> AsyncIterator[Sequence[Enqueue]]:
    """Enqueue one job a call, the clients over a pool of their number."""
    async with connect(dsn, count, autocommit=True) as pool:
        client = Oban(pool=pool, name="clients")

        async def enqueue(payload: Payload) -> None:
            await client.enqueue(Noop.new(payload))

        yield [enqueue] * count


@asynccontextmanager
async def bulk(dsn: str) -> AsyncIterator[EnqueueMany]:
    """Enqueue by lists: one transaction each, one INSERT a job."""
    async with connect(dsn, 1) as pool:
        client = Oban(pool=pool)

        async def enqueue_many(payloads: list[Payload]) -> None:
            await client.enqueue_many([Noop.new(payload) for payload in payloads])

        yield enqueue_many


@asynccontextmanager
async def worker(dsn: str, handle: Handle) -> AsyncIterator[Start]:
    """Run one instance; it writes its completions on the way out."""
    Noop.handle = handle
    async with connect(dsn, POOL) as pool:
        working = Oban(pool=pool, queues={"default": LIMIT})
        try:
            yield working.start
        finally:
            await working.stop()


async def left(dsn: str) -> int:
    """Count the jobs that have no end yet."""
    query = (
        "select count(*) from oban_jobs where state not in ('completed', 'cancelled', 'discarded')"
    )
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute(query)
        (count,) = await cursor.fetchone() or (0,)
        return count


if __name__ == "__main__":
    serve(
        Peer(
            about=ABOUT,
            setup=setup,
            clients=clients,
            bulk=bulk,
            chunk=1_000,
            worker=worker,
            left=left,
        )
    )
