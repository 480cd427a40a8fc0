"""What ten workers with nothing to do ask of the database."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from subprocess import DEVNULL
from typing import Final

import anyio
import asyncpg

from reliq.bench.arena import Arena
from reliq.bench.contestant import CODE, OURS, BenchFailed
from reliq.bench.sample import Sample

WORKERS: Final = 10
SETTLE_S: Final = 4.0
"""For the last of them to have looked around after its start, and for the server to have counted it."""

SECONDS: Final = 60.0
"""Two beats of the scheduler, of each worker: a part of one has all of them or none."""

START_S: Final = 60.0
_LISTENING: Final = """
    select count(*) from pg_stat_activity
    where datname = current_database() and application_name = 'reliq listen'
"""
_COUNT: Final = "select xact_commit from pg_stat_database where datname = current_database()"


async def play(arena: Arena, number: int) -> AsyncIterator[Sample]:
    """Count transactions while ten shipped workers wait; one is enough, it has no noise."""
    if number != 1:
        return
    arena.tell(f"idle: {WORKERS} workers")
    async with arena.ground.database(OURS) as dsn, AsyncExitStack() as stack:
        env = {
            "RELIQ_DATABASE_URL": dsn, "RELIQ_APP": "reliq.bench.ours:app", "RELIQ_SECRETS__BENCH": "x",
            "PYTHONPATH": CODE,
            "PATH": "/usr/bin:/bin",
        }  # fmt: skip
        workers = []
        for _ in range(WORKERS):
            worker = await anyio.open_process(
                [sys.executable, "-m", "reliq", "worker"], env=env, stdout=DEVNULL, stderr=DEVNULL
            )
            await stack.enter_async_context(worker)
            workers.append(worker)
        watcher = await asyncpg.connect(dsn)
        with anyio.fail_after(START_S):
            while await watcher.fetchval(_LISTENING) < WORKERS:
                await anyio.sleep(0.1)
        await anyio.sleep(SETTLE_S)
        before = await watcher.fetchval(_COUNT)
        await anyio.sleep(SECONDS)
        queries = await watcher.fetchval(_COUNT) - before - 1
        watcher.terminate()
        if any(worker.returncode is not None for worker in workers):
            raise BenchFailed("a worker that was to wait has ended")
        for worker in workers:
            worker.terminate()
    yield Sample("idle", OURS.name, number, {"queries_per_s": queries / SECONDS})
