"""Harm to Postgres: restarts, a freeze, lost backends, locks, old snapshots, no connections left."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import anyio
import anyio.to_thread
import asyncpg

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.model.steps import Pg
from reliq.scenario.stage.database import connect

_OURS = "application_name <> 'harness' and pid <> pg_backend_pid()"
_BACKENDS = f"backend_type = 'client backend' and datname = current_database() and {_OURS}"
_IN_USE = f"select count(*) from pg_stat_activity where {_BACKENDS}"  # noqa: S608 - our own words


Harm = Callable[[Pg, Scene], AbstractAsyncContextManager[Bite]]

BLOCKED = """
select count(*) from pg_stat_activity
where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0
"""

_BEHIND = """
select count(*) from pg_stat_activity
where datname = current_database() and $1::int = any (pg_blocking_pids(pid))
"""
# Others on this server may wait for us, too: to open a slot is to wait for every transaction.

DOWN_S = 0.5
"""How long a server that was killed stays away."""


@asynccontextmanager
async def harm(what: Pg, scene: Scene) -> AsyncIterator[Bite]:
    """Do the one that is asked for."""
    async with _asked_for(what)(what, scene) as bite:
        yield bite


def _asked_for(what: Pg) -> Harm:
    harms: dict[str, Harm] = {
        "restart": _restarted, "freeze": _frozen, "terminate": _terminated, "lock_rows": _locked,
        "lock_table": _locked, "hold_snapshot": _snapshot, "squat": _squatted, "sql": _sql,
    }  # fmt: skip
    return next(found for name, found in harms.items() if getattr(what, name) is not None)


@asynccontextmanager
async def _sql(what: Pg, scene: Scene) -> AsyncIterator[Bite]:
    said = await scene.stage.database.connection.do(lambda c: c.execute(what.sql or ""))
    yield Bite("postgres", 1, {"said": said})


@asynccontextmanager
async def _restarted(what: Pg, scene: Scene) -> AsyncIterator[Bite]:
    """End every session: in good order, by a crash, or by a crash that takes a while to notice."""
    server = scene.stage.server
    ends: dict[str, Callable[[], None]] = {
        "fast": server.stop, "immediate": server.crash, "kill": server.crash,
    }  # fmt: skip
    hits, how = await scene.stage.database.ask(_IN_USE), what.restart or ""
    await anyio.to_thread.run_sync(ends[how])
    if how == "kill":
        await anyio.sleep(DOWN_S)
    await anyio.to_thread.run_sync(server.start)
    yield Bite("postgres", int(hits), {"how": how})


@asynccontextmanager
async def _frozen(_: Pg, scene: Scene) -> AsyncIterator[Bite]:
    server = scene.stage.server
    hits = await scene.stage.database.ask(_IN_USE)
    await anyio.to_thread.run_sync(server.freeze)
    try:
        yield Bite("postgres", int(hits), lasts=True)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.thaw)


@asynccontextmanager
async def _terminated(what: Pg, scene: Scene) -> AsyncIterator[Bite]:
    """Terminate backends of this database: once, or again and again until undone."""
    statement = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity "  # noqa: S608 - the file's author may
        f"where {_BACKENDS} and ({what.terminate})"
    )
    total = 0

    async def once() -> None:
        nonlocal total
        total += await scene.stage.database.ask(statement)

    async def again(pause_s: float) -> None:
        while True:
            await anyio.sleep(pause_s)
            await once()

    async def hits() -> int:
        return total

    await once()
    async with anyio.create_task_group() as tasks:
        if what.every is not None:
            tasks.start_soon(again, what.every.total_seconds())
        yield Bite("postgres", total, lasts=what.every is not None, later=hits)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _locked(what: Pg, scene: Scene) -> AsyncIterator[Bite]:
    """
    Hold locks in a transaction of ours; undone by ending it.

    Hits are the rows, or the table; of the end, the backends that wait for us then.
    """
    async with _session(scene) as connection:
        pid = connection.get_server_pid()

        async def waiting() -> int:
            return int(await scene.stage.database.ask(_BEHIND, pid))

        await connection.execute("begin")
        if what.lock_table is not None:
            await connection.execute(f"lock table {what.lock_table} in exclusive mode")
            to, hits = "postgres", 1
        else:
            to, hits = "rows", len(await connection.fetch(f"{what.lock_rows} for update"))
        yield Bite(to, hits, lasts=True, later=waiting)


@asynccontextmanager
async def _snapshot(_: Pg, scene: Scene) -> AsyncIterator[Bite]:
    """Hold an old snapshot, so that nothing can be cleaned away."""
    async with _session(scene) as connection:
        await connection.execute("begin isolation level repeatable read")
        await connection.fetchval("select txid_current()")
        yield Bite("postgres", 1, lasts=True)


@asynccontextmanager
async def _squatted(what: Pg, scene: Scene) -> AsyncIterator[Bite]:
    """Take every connection that is left, and give back so many."""
    taken: list[asyncpg.Connection] = []
    leave = what.squat or 0
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
