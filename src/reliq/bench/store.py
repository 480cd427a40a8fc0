"""The shipped store on a database, with its page reads counted: what no machine's noise touches."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg

from reliq.domain.job import Kind, WorkerName
from reliq.domain.outcome import Succeed
from reliq.postgres.pool import Database
from reliq.postgres.queue import PostgresQueue

KIND = Kind("bench.noop")

_PAGES = """
    select coalesce(sum(pg_stat_get_xact_blocks_fetched(oid)), 0)::bigint from pg_class
    where relnamespace = 'reliq'::regnamespace
"""


class OneConnection:
    """Fits what the store asks of a pool, and keeps all in one transaction, which counts pages."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self.fetch = connection.fetch


@dataclass(slots=True)
class Store:
    """A worker's store; `pages` is what its claims have read since it was opened."""

    connection: asyncpg.Connection
    queue: PostgresQueue
    pages: int = 0
    claimed: int = 0

    async def drain(self, batch: int, jobs: int) -> None:
        """Claim and settle `jobs` jobs, `batch` at a time; claims are counted, settles are not."""
        while jobs > 0:
            async with self.connection.transaction():
                before = await self.connection.fetchval(_PAGES)
                claims = await self.queue.claim_jobs(min(batch, jobs))
                self.pages += await self.connection.fetchval(_PAGES) - before
            if not claims:
                return
            self.claimed += len(claims)
            jobs -= len(claims)
            await self.queue.settle_jobs([(claim, Succeed()) for claim in claims])

    def pages_per_job(self) -> float:
        """Return pages read for each job claimed since the last time."""
        found = self.pages / max(self.claimed, 1)
        self.pages = self.claimed = 0
        return found


@asynccontextmanager
async def open_store(dsn: str) -> AsyncIterator[Store]:
    """Open it on one connection, prepared as the worker's are."""
    connection = await Database(dsn=dsn, deadline_s=600).connect("bench store")
    pool: Any = OneConnection(connection)
    queue = PostgresQueue(
        pool=pool, transactions=pool, effects=pool, worker=WorkerName("bench"), lease=timedelta(hours=1), deadline=timedelta(seconds=10),
        attempts_max={KIND: 8}, alerts=False, alert_window=timedelta(hours=1),
        key_ttl=timedelta(days=35),
    )  # fmt: skip
    try:
        yield Store(connection, queue)
    finally:
        connection.terminate()
