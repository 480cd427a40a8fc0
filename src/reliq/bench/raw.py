"""
The limit: loops of the bare statements on the same tables, with nothing around them.

Two connections claim and settle 500 jobs at a time; single jobs are plain inserts.
"""

import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from json import dumps
from typing import Final

import anyio
import asyncpg

from reliq.bench import ours
from reliq.bench.protocol import PAYLOAD, Count, Timed, cpu_s, dsn, heard, say
from reliq.postgres.pool import Connection, Database
from reliq.postgres.queries import query

_BATCH: Final = 500
_LOOPS: Final = 2
_KIND: Final = "bench.noop"
_HEAD: Final = datetime(2000, 1, 1, tzinfo=UTC)
_LEASE: Final = timedelta(minutes=1)
_INSERT: Final = """
    insert into reliq.jobs (kind, payload, key) values ($1, $2, $3)
"""
_INSERT_KEYED: Final = """
    with job as (insert into reliq.jobs (kind, payload, key) values ($1, $2, $3) returning id)
    insert into reliq.job_keys select $1, $3, id, now() + interval '35 days' from job
"""
_UNNEST: Final = """
    insert into reliq.jobs (kind, payload, key)
    select * from unnest($1::text[], $2::jsonb[], $3::text[])
"""


async def about() -> None:
    """Say who we are."""
    say(
        name="raw", version=asyncpg.__version__, keeps_finished=True, fenced=True,
        settings=f"reliq's claim and settle, {_BATCH} at a time, {_LOOPS} connections, no worker",
    )  # fmt: skip


async def fill(count: str) -> None:
    """Put jobs into the table, 10,000 in a statement."""
    connection = await asyncpg.connect(dsn())
    payload = dumps(PAYLOAD)
    with Timed() as timed:
        for start in range(0, int(count), 10_000):
            size = min(10_000, int(count) - start)
            keys = [f"k{start + n}" for n in range(size)]
            await connection.execute(_UNNEST, [_KIND] * size, [payload] * size, keys)
    await connection.close()
    say(jobs=int(count), seconds=timed.seconds, cpu_s=timed.cpu_s)


async def enqueue(count: str, clients: str, keyed: str = "") -> None:
    """Put jobs into the table one by one."""
    numbers, payload, size = iter(range(int(count))), dumps(PAYLOAD), int(clients)
    text = _INSERT_KEYED if keyed else _INSERT

    async def client(connection: Connection) -> None:
        for number in numbers:
            await connection.execute(text, _KIND, payload, f"bench:{number}")

    async with (
        asyncpg.create_pool(dsn(), min_size=size, max_size=size) as pool,
        AsyncExitStack() as stack,
    ):
        held = [await stack.enter_async_context(pool.acquire()) for _ in range(size)]
        for n, connection in enumerate(held):
            await connection.execute(text, _KIND, payload, f"first {n}")
        with Timed() as timed:
            async with anyio.create_task_group() as tasks:
                for connection in held:
                    tasks.start_soon(client, connection)
    say(jobs=int(count), seconds=timed.seconds, cpu_s=timed.cpu_s)


async def drain() -> None:
    """Claim and settle until told to stop."""
    count = Count()
    async with Database(dsn=dsn()).pool("bench raw", _LOOPS) as pool:
        await pool.fetchval("select 1")
        say(ready=True)
        await heard()
        began_cpu_s = cpu_s()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count.tell)
            for _ in range(_LOOPS):
                tasks.start_soon(_loop, pool, count)
            await heard()
            tasks.cancel_scope.cancel()
    say(stopped=True, done=count.done, at=count.at, cpu_s=cpu_s() - began_cpu_s)


async def _loop(pool: asyncpg.Pool, count: Count) -> None:
    claim, settle = query("claim_jobs").text, query("settle_succeeded").text
    after = (_HEAD, 0)
    async with pool.acquire() as connection:
        while True:
            rows = await connection.fetch(
                claim, _BATCH, _LEASE, "raw", ["default"], [5], [after[0]], [after[1]], [_KIND], [8]
            )
            if not rows:
                after = (_HEAD, 0)
                await anyio.sleep(0.01)
                continue
            after = max((row["run_at"], row["id"]) for row in rows)
            ids, fences = [row["id"] for row in rows], [row["fence"] for row in rows]
            await connection.fetch(settle, ids, fences)
            count.done += len(rows)
            count.at = time.time()


WORDS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    "about": about, "setup": ours.setup, "fill": fill, "enqueue": enqueue, "drain": drain,
    "left": ours.left,
}  # fmt: skip

if __name__ == "__main__":
    anyio.run(
        WORDS[sys.argv[1]], *sys.argv[2:],
        backend_options={"use_uvloop": find_spec("uvloop") is not None},
    )  # fmt: skip
