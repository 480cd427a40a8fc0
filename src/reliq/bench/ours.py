"""
reliq as a contestant: the shipped worker with its defaults, and the public ways to enqueue.

The worker's log goes where production's goes, to stderr; nothing is switched off.
"""

import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.metadata import version
from importlib.util import find_spec
from typing import Final

import anyio
import asyncpg

import reliq
from reliq import logs
from reliq.app import App, Source
from reliq.bench.protocol import PAYLOAD, Count, Timed, cpu_s, dsn, heard, say
from reliq.domain.job import NewJob
from reliq.domain.signature import SITE
from reliq.job import Job
from reliq.postgres.enqueuer import open_enqueuer
from reliq.postgres.migrate import migrate
from reliq.postgres.pool import Connection
from reliq.settings import Settings
from reliq.wiring.worker import work

_KIND: Final = "bench.noop"
_IDLE_S: Final = 1.5
"""For a worker that has just started to come to rest."""


async def _noop(_: Job) -> None:
    pass


app: Final = App(
    handlers={_KIND: _noop},
    sources={
        "bench": Source(
            signature=SITE, dedup_key=lambda delivery: str(delivery.json()["id"]),
            route=lambda delivery: [NewJob(kind=_KIND, payload=delivery.json())],
        )
    }
)  # fmt: skip
"""What shipped processes run when deliveries and idle workers are measured."""


async def about() -> None:
    """Say who we are."""
    say(
        name="reliq", version=version("reliq"), keeps_finished=True, fenced=True,
        settings=f"defaults: {Settings.model_fields['concurrency'].default} places",
    )  # fmt: skip


async def setup() -> None:
    """Make the tables."""
    await migrate(dsn())


async def fill(count: str) -> None:
    """Put jobs into the queue by the call for many."""
    jobs = [NewJob(kind=_KIND, payload=PAYLOAD)] * int(count)
    async with open_enqueuer(dsn(), size=1) as queue:
        await queue.enqueue_many(jobs[:1])
        with Timed() as timed:
            await queue.enqueue_many(jobs[1:])
    say(jobs=len(jobs), seconds=timed.seconds, cpu_s=timed.cpu_s)


async def enqueue(count: str, clients: str, keyed: str = "") -> None:
    """Put jobs into the queue one by one; `keyed` gives each a key of its own."""
    numbers = iter(range(int(count)))

    async def put(connection: Connection, key: str) -> None:
        await reliq.enqueue(connection, _KIND, PAYLOAD, key=f"bench:{key}" if keyed else None)
        queue.bell.ring()

    async def client(connection: Connection) -> None:
        for number in numbers:
            await put(connection, str(number))

    async with open_enqueuer(dsn(), size=int(clients)) as queue, AsyncExitStack() as stack:
        held = [await stack.enter_async_context(queue.pool.acquire()) for _ in range(int(clients))]
        for n, connection in enumerate(held):
            await put(connection, f"first {n}")
        with Timed() as timed:
            async with anyio.create_task_group() as tasks:
                for connection in held:
                    tasks.start_soon(client, connection)
    say(jobs=int(count), seconds=timed.seconds, cpu_s=timed.cpu_s)


async def drain() -> None:
    """Work until told to stop."""
    count = Count()

    async def noop(_: Job) -> None:
        count.one()

    say(ready=True)
    await heard()
    began_cpu_s = cpu_s()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count.tell)
        tasks.start_soon(_stop_when_told)
        await _work(App(handlers={_KIND: noop}))
        tasks.cancel_scope.cancel()
    say(stopped=True, done=count.done, at=count.at, cpu_s=cpu_s() - began_cpu_s)


async def latency(count: str, every_ms: str) -> None:
    """Measure from the call that enqueues to the start of the handler."""
    delays: list[float] = []

    async def arrived(job: Job) -> None:
        delays.append((time.time() - job.payload["at"]) * 1000)

    async def ask() -> None:
        async with open_enqueuer(dsn(), size=1) as queue:
            await anyio.sleep(_IDLE_S)
            for _ in range(int(count)):
                await queue.enqueue(_KIND, {**PAYLOAD, "at": time.time()})
                await anyio.sleep(float(every_ms) / 1000)
            while len(delays) < int(count):
                await anyio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await _work(App(handlers={_KIND: arrived}))
    say(ms=delays)


async def left() -> None:
    """Count what is not finished."""
    connection = await asyncpg.connect(dsn())
    wanted = "select count(*) from reliq.jobs where state in ('queued', 'running')"
    say(left=await connection.fetchval(wanted))
    await connection.close()


async def _work(app: App) -> None:
    settings = Settings.model_validate({"database_url": dsn(), "log": "json"})
    logs.configure(settings.log)
    await work(settings, app)


async def _stop_when_told() -> None:
    await heard()
    os.kill(os.getpid(), signal.SIGTERM)


WORDS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    "about": about, "setup": setup, "fill": fill, "enqueue": enqueue, "drain": drain,
    "latency": latency, "left": left,
}  # fmt: skip

if __name__ == "__main__":
    anyio.run(
        WORDS[sys.argv[1]], *sys.argv[2:],
        backend_options={"use_uvloop": find_spec("uvloop") is not None},
    )  # fmt: skip
