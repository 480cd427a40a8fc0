"""
pgqueuer: claims and completions in batches, over asyncpg.

Two managers in one process, each with its own connection and batches of 200, drained fastest of
the sizes tried: while one waits for Postgres the other runs handlers. Batches of 100 were slower in
six of eight pairs; batches of 500 were no faster, nor were three or four managers. Its settings for
autovacuum (`pgq autovac`) are on, as it advises for a busy queue. Jobs leave the table when they
end, by id alone, and a line in its log stays.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Final

import asyncpg
from pgqueuer import AsyncpgDriver, Job, Queries, QueueManager
from protocol import About, Enqueue, EnqueueMany, Handle, Payload, Peer, Start, serve

MANAGERS: Final = 2
BATCH: Final = 200

ABOUT: Final = About(
    name="pgqueuer",
    version=version("pgqueuer"),
    keeps_finished=False,
    fenced=False,
    settings=f"asyncpg, {MANAGERS} managers of batch {BATCH} each, its autovacuum settings, uvloop",
)


@asynccontextmanager
async def connect(dsn: str, connections: int) -> AsyncIterator[list[Queries]]:
    """Hold so many connections, each with the calls of its own."""
    async with AsyncExitStack() as stack:
        queries = []
        for _ in range(connections):
            connection = await asyncpg.connect(dsn)
            stack.push_async_callback(connection.close)
            queries.append(Queries(AsyncpgDriver(connection)))
        yield queries


async def setup(dsn: str) -> None:
    """Make the tables, and set autovacuum as pgqueuer advises."""
    async with connect(dsn, 1) as (queries,):
        await queries.install()
        await queries.optimize_autovacuum()


@asynccontextmanager
async def clients(dsn: str, count: int) -> AsyncIterator[Sequence[Enqueue]]:
    """Enqueue one job a call, each client on a connection of its own."""

    def client(queries: Queries) -> Enqueue:
        async def enqueue(payload: Payload) -> None:
            await queries.enqueue("noop", json.dumps(payload).encode())

        return enqueue

    async with connect(dsn, count) as held:
        yield [client(queries) for queries in held]


@asynccontextmanager
async def bulk(dsn: str) -> AsyncIterator[EnqueueMany]:
    """Enqueue by lists: one statement with arrays."""
    async with connect(dsn, 1) as (queries,):

        async def enqueue_many(payloads: list[Payload]) -> None:
            jobs = [json.dumps(payload).encode() for payload in payloads]
            await queries.enqueue(["noop"] * len(jobs), jobs, [0] * len(jobs))

        yield enqueue_many


@asynccontextmanager
async def worker(dsn: str, handle: Handle) -> AsyncIterator[Start]:
    """Run the managers side by side; on the way out they finish what they claimed."""

    async def noop(job: Job) -> None:
        handle(job.payload or b"")

    async with connect(dsn, MANAGERS) as held, asyncio.TaskGroup() as tasks:
        managers = [QueueManager(queries) for queries in held]

        async def start() -> None:
            for manager in managers:
                manager.entrypoint("noop")(noop)
                tasks.create_task(manager.run(batch_size=BATCH))

        yield start
        for manager in managers:
            manager.shutdown.set()


async def left(dsn: str) -> int:
    """Count what is in the queue: finished jobs are not."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval("select count(*) from pgqueuer")
    finally:
        await connection.close()


if __name__ == "__main__":
    serve(
        Peer(
            about=ABOUT,
            setup=setup,
            clients=clients,
            bulk=bulk,
            chunk=5_000,
            worker=worker,
            left=left,
        )
    )
