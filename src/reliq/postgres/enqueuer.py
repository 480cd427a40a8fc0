"""Enqueue from a process of one's own: a pool, and a bell that wakes idle workers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import anyio
import asyncpg

from reliq.domain.job import PRIORITY_DEFAULT, QUEUE_DEFAULT, Enqueued, NewJob
from reliq.domain.outcome import cause
from reliq.domain.payload import Fields
from reliq.domain.sealed import Sealer
from reliq.postgres.enqueue import enqueue, enqueue_many
from reliq.postgres.failures import translated
from reliq.postgres.listen import Bell
from reliq.postgres.pool import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueuer:
    """Each call commits by itself and wakes an idle worker; see `open_enqueuer`."""

    pool: asyncpg.Pool
    bell: Bell
    sealing: Sealer | None = None

    async def enqueue(
        self,
        kind: str,
        payload: Fields | None = None,
        *,
        key: str | None = None,
        run_in: timedelta = timedelta(0),
        queue: str = QUEUE_DEFAULT,
        priority: int = PRIORITY_DEFAULT,
        group_key: str | None = None,
        group_running: int = 1,
    ) -> Enqueued:
        """Put one job into the queue; arguments, answer and errors as of `reliq.enqueue`."""
        answer = await enqueue(
            self.pool, kind, payload, key=key, run_in=run_in, queue=queue, priority=priority,
            group_key=group_key, group_running=group_running,
            sealing=self.sealing,
        )  # fmt: skip
        self.bell.ring()
        return answer

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Put many jobs into the queue, all or none; see `reliq.enqueue_many`."""
        with translated():
            async with self.pool.acquire() as connection:
                answers = await enqueue_many(connection, jobs, sealing=self.sealing)
        self.bell.ring()
        return answers


@asynccontextmanager
async def open_enqueuer(
    dsn: str,
    *,
    size: int = 10,
    prepared: bool = True,
    planner: Literal["pool", "role"] = "pool",
    sealing: Sealer | None = None,
) -> AsyncIterator[Enqueuer]:
    """
    Open a pool of at most `size` connections for enqueueing outside of your own transactions.

    `prepared` and `planner` are what RELIQ_PREPARED and RELIQ_PLANNER are to the commands;
    `sealing` (a `reliq.Sealing`) encrypts secret fields of payloads.

    A job enqueued in a transaction of yours (`reliq.enqueue`) starts within the workers' poll;
    one enqueued here starts within milliseconds of its commit, because a notification follows.
    """
    database = Database(dsn=dsn, prepared=prepared, planner=planner)
    bell = Bell(database)
    try:
        async with (
            database.pool("reliq enqueuer", size) as pool,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(bell.run)
            yield Enqueuer(pool=pool, bell=bell, sealing=sealing)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:  # what the caller's block raises is his own error
        raise cause(group) from None
