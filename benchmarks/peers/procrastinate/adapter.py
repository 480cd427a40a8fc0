"""
procrastinate: one claim and one completion a job, each a function in the database.

Thirty jobs at a time over twenty connections drained fastest of the sizes tried; to delete
finished jobs was no faster, so they stay, as by default. It listens for new jobs. A job is ended
by id and state, so a worker that lost its job may still end the next attempt.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final

import psycopg
from procrastinate import App, PsycopgConnector
from protocol import About, Enqueue, EnqueueMany, Handle, Payload, Peer, Start, serve

CONCURRENCY: Final = 30
POOL: Final = 20

ABOUT: Final = About(
    name="procrastinate",
    version=version("procrastinate"),
    keeps_finished=True,
    fenced=False,
    settings=f"psycopg (binary), concurrency {CONCURRENCY}, pool {POOL}, listens, uvloop",
)


def app(dsn: str, pool: int) -> App:
    """Make an App whose pool holds so many connections all the time."""
    return App(connector=PsycopgConnector(conninfo=dsn, min_size=pool, max_size=pool))


async def setup(dsn: str) -> None:
    """Make the tables."""
    async with app(dsn, 1).open_async() as opened:
        await opened.schema_manager.apply_schema_async()


@asynccontextmanager
async def clients(dsn: str, count: int) -> AsyncIterator[Sequence[Enqueue]]:
    """Enqueue one job a call, the clients over a pool of their number."""
    async with app(dsn, count).open_async() as opened:
        deferrer = opened.configure_task("noop")

        async def enqueue(payload: Payload) -> None:
            await deferrer.defer_async(**payload)

        yield [enqueue] * count


@asynccontextmanager
async def bulk(dsn: str) -> AsyncIterator[EnqueueMany]:
    """Enqueue by batches: one statement each."""
    async with app(dsn, 1).open_async() as opened:
        deferrer = opened.configure_task("noop")

        async def enqueue_many(payloads: list[Payload]) -> None:
            await deferrer.batch_defer_async(*payloads)

        yield enqueue_many


@asynccontextmanager
async def worker(dsn: str, handle: Handle) -> AsyncIterator[Start]:
    """Run one worker; it takes a cancellation as the word to stop gracefully."""
    working = app(dsn, POOL)

    @working.task(name="noop")
    async def noop(**payload: object) -> None:
        handle(payload)

    async with working.open_async(), asyncio.TaskGroup() as tasks:
        running: list[asyncio.Task[None]] = []

        async def start() -> None:
            run = working.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
            running.append(tasks.create_task(run))

        yield start
        for run in running:
            run.cancel()


async def left(dsn: str) -> int:
    """Count the jobs that have no end yet."""
    query = (
        "select count(*) from procrastinate_jobs"
        " where status not in ('succeeded', 'failed', 'cancelled', 'aborted')"
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
