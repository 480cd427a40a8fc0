"""Harm to Postgres: restarts, a freeze, lost backends, locks, old snapshots, no connections left."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import anyio.to_thread
import asyncpg

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.model.steps import Pg
from reliq.scenario.stage.database import connect

_OURS = "application_name <> 'harness' and pid <> pg_backend_pid()"
_BACKENDS = f"backend_type = 'client backend' and datname = current_database() and {_OURS}"
_IN_USE = f"select count(*) from pg_stat_activity where backend_type = 'client backend' and {_OURS}"


DOWN_S = 0.5
"""How long a server that was killed stays away."""


@asynccontextmanager
async def harm(what: Pg, scene: Scene) -> AsyncIterator[Bite]:
    """Do the one that is asked for."""
    async with AsyncExitStack() as stack:
        yield await _done(what, scene, stack)


async def _done(what: Pg, scene: Scene, stack: AsyncExitStack) -> Bite:
    if what.restart is not None:
        return await _restart(what.restart, scene)
    if what.freeze:
        return await stack.enter_async_context(_frozen(scene))
    if what.terminate is not None:
        every_s = None if what.every is None else what.every.total_seconds()
        return await stack.enter_async_context(_terminated(what.terminate, every_s, scene))
    if what.lock_rows is not None:
        return await stack.enter_async_context(_locked(what.lock_rows, scene))
    if what.hold_snapshot:
        return await stack.enter_async_context(_snapshot(scene))
    if what.squat is not None:
        return await stack.enter_async_context(_squatted(what.squat, scene))
    said = await scene.stage.database.connection.do(lambda c: c.execute(what.sql or ""))
    return Bite("postgres", 1, {"said": said})


async def _restart(how: str, scene: Scene) -> Bite:
    """End every session: in good order, by a crash, or by a crash that takes a while to notice."""
    server = scene.stage.server
    ends: dict[str, Callable[[], None]] = {
        "fast": server.stop, "immediate": server.crash, "kill": server.crash,
    }  # fmt: skip
    hits = await scene.stage.database.ask(_IN_USE)
    await anyio.to_thread.run_sync(ends[how])
    if how == "kill":
        await anyio.sleep(DOWN_S)
    await anyio.to_thread.run_sync(server.start)
    return Bite("postgres", int(hits), {"how": how})


@asynccontextmanager
async def _frozen(scene: Scene) -> AsyncIterator[Bite]:
    server = scene.stage.server
    hits = await scene.stage.database.ask(_IN_USE)
    await anyio.to_thread.run_sync(server.freeze)
    try:
        yield Bite("postgres", int(hits), lasts=True)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.thaw)


@asynccontextmanager
async def _terminated(which: str, every_s: float | None, scene: Scene) -> AsyncIterator[Bite]:
    """Terminate backends of this database: once, or again and again until undone."""
    statement = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity "
        f"where {_BACKENDS} and ({which})"
    )
    total = 0

    async def once() -> None:
        nonlocal total
        total += await scene.stage.database.ask(statement)

    async def again(pause_s: float) -> None:
        while True:
            await anyio.sleep(pause_s)
            await once()

    async def hits() -> int:  # noqa: RUF029 - counts of other kinds of harm have to ask
        return total

    await once()
    async with anyio.create_task_group() as tasks:
        if every_s is not None:
            tasks.start_soon(again, every_s)
        yield Bite("postgres", total, lasts=every_s is not None, later=hits)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _locked(select: str, scene: Scene) -> AsyncIterator[Bite]:
    """Hold locks on rows in a transaction of ours; undone by ending it."""
    async with _session(scene) as connection:
        await connection.execute("begin")
        rows = await connection.fetch(f"{select} for update")
        yield Bite("postgres", len(rows), lasts=True)


@asynccontextmanager
async def _snapshot(scene: Scene) -> AsyncIterator[Bite]:
    """Hold an old snapshot, so that nothing can be cleaned away."""
    async with _session(scene) as connection:
        await connection.execute("begin isolation level repeatable read")
        await connection.fetchval("select txid_current()")
        yield Bite("postgres", 1, lasts=True)


@asynccontextmanager
async def _squatted(leave: int, scene: Scene) -> AsyncIterator[Bite]:
    """Take every connection that is left, and give back so many."""
    taken: list[asyncpg.Connection] = []
    try:
        with suppress(asyncpg.TooManyConnectionsError):
            while True:
                taken.append(await connect(scene.stage.database.dsn))
        for connection in taken[:leave]:
            await connection.close()
        yield Bite("postgres", len(taken[leave:]), lasts=True)
    finally:
        for connection in taken:
            connection.terminate()


@asynccontextmanager
async def _session(scene: Scene) -> AsyncIterator[asyncpg.Connection]:
    connection = await connect(scene.stage.database.dsn)
    try:
        yield connection
    finally:
        connection.terminate()
