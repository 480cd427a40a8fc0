"""
A database of the run's own, and its write-ahead log, read through a slot.

The product's statements are not used: they may be what is wrong. Of the product's tables only
names are known, here, in `witness.sql` and in `committed.py`.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from secrets import token_hex
from typing import Any, Final, TypeVar
from urllib.parse import quote

import anyio
import asyncpg

from reliq.errors import HarnessError
from reliq.scenario.history import Entry
from reliq.scenario.stage.committed import entries_of
from reliq.scenario.stage.decoding import transactions

DEADLINE_S: Final = 10.0
"""For each connection and each statement of ours."""

RECONNECT_S: Final = 15.0
"""For a server of ours to come back after the scenario has restarted it."""

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PAUSE_S: Final = 0.02
_LOST: Final = (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError,
                asyncpg.CannotConnectNowError, asyncpg.AdminShutdownError,
                asyncpg.TooManyConnectionsError, asyncpg.InternalClientError)  # fmt: skip
"""The last is what asyncpg makes of a server that crashed in the middle of an answer."""


_OPEN: Final = """
select (
  select count(*) from reliq.jobs
  where state = 'running' or state = 'queued' and run_at < reliq.now() + interval '1 hour'
) + (
  select count(*) from reliq.parents p
  where finished_at is null and not exists (
    select from reliq.jobs j where j.parent_id = p.job_id and j.state <> 'succeeded'
    and (on_failure = 'hold' or j.state in ('queued', 'running')))
)
"""

_READ: Final = """
select lsn::text, xid::text::bigint, data
from pg_logical_slot_peek_changes($1, null, null, 'include-timestamp', 'on')
"""

_GO_ON: Final = "select pg_replication_slot_advance($1, $2::text::pg_lsn)"

_HOLD: Final = "begin; set local lock_timeout = '1s'; lock table reliq.jobs in share mode"

_TABLES: Final = """
select array_agg(format('%I.%I', schemaname, tablename) order by tablename)
from pg_tables where schemaname = 'reliq'
"""

_ROWS: Final = """
select string_agg(jsonb_build_object('table', $1::text, 'row', to_jsonb(t))::text, e'\\n')
from {table} t
"""

_CLOCK: Final = """
create or replace function reliq.now() returns timestamptz
  language sql stable parallel safe
  return statement_timestamp() + (select shift from drill.clock)
"""


@dataclass(frozen=True, slots=True)
class ClockMap:
    """The database's clock on ours: `offset` ns are added, `error` ns is how wrong that can be."""

    offset: int
    error: int

    def monotonic(self, at: int) -> int:
        """Place a moment of the database (microseconds) on our monotonic clock (nanoseconds)."""
        return at * 1000 + self.offset


class Connection:
    """Our own connection: opened anew when the server was restarted under it."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._open: asyncpg.Connection | None = None
        self._lock = anyio.Lock()

    async def do(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Do some work that may be done again, for as long as the server is on its way back."""
        async with self._lock:
            with anyio.fail_after(RECONNECT_S):
                while True:
                    try:
                        if self._open is None or self._open.is_closed():
                            self._open = await connect(self._dsn)
                        return await work(self._open)
                    except _LOST:
                        self.close()
                        await anyio.sleep(_PAUSE_S)
                    except anyio.get_cancelled_exc_class():
                        self.close()  # in the middle of an answer
                        raise

    def close(self) -> None:
        """Close it, whatever state it is in."""
        if self._open is not None:
            self._open.terminate()
            self._open = None


@dataclass(slots=True)
class Database:
    """An empty, migrated database with its witness, and what its write-ahead log has told."""

    dsn: str
    connection: Connection
    slot: str
    clock: ClockMap = ClockMap(0, 0)
    _seen: set[str] = field(default_factory=set)
    _read_to: str | None = None
    _last_t: int = 0
    _holder: Connection | None = None
    _reading: anyio.Lock = field(default_factory=anyio.Lock)

    def dsn_of(self, process: str, port: int | None = None) -> str:
        """Return the address for one process: its name goes with it, and every statement tells it."""
        address = self.dsn
        if port is not None:
            head, _, tail = address.partition("@")
            host, _, name = tail.partition("/")
            address = f"{head}@{host.rpartition(':')[0]}:{port}/{name}"
        return f"{address}?drill.p={quote(process)}"

    async def ask(self, statement: str, *values: object) -> Any:
        """Run a statement of ours that may be run twice; return its first value."""
        return await self.connection.do(lambda c: c.fetchval(statement, *values))

    async def count_open(self) -> int:
        """Count jobs not at an end, but for those planned far ahead, and families that nobody holds."""
        return int(await self.ask(_OPEN))

    async def dump(self) -> str:
        """Read every row of the product's tables: one JSON object a line, with its table's name."""
        tables = await self.ask(_TABLES)
        rows = [await self.ask(_ROWS.format(table=table), table) for table in tables]
        return "".join(f"{found}\n" for found in rows if found)

    async def hold_still(self) -> bool:
        """
        Keep every job as it is until the end, if all have come to one; else say False.

        A schedule makes the next job while the last are read: there is no rest but by a lock.
        """
        if await self.count_open():
            return False
        holder = Connection(self.dsn)
        try:
            await holder.do(lambda c: c.execute(_HOLD))
            if not await holder.do(lambda c: c.fetchval(_OPEN)):
                self._holder = holder
        except asyncpg.LockNotAvailableError:
            pass
        finally:
            if self._holder is not holder:
                holder.close()
        return self._holder is not None

    def close(self) -> None:
        """Let go of everything."""
        for each in (self._holder, self.connection):
            if each is not None:
                each.close()

    async def map_clock(self) -> ClockMap:
        """Compare the clocks; of several tries the quickest is the most exact."""

        async def tries(connection: asyncpg.Connection) -> list[ClockMap]:
            found = []
            for _ in range(7):
                before = time.monotonic_ns()
                at = await connection.fetchval("select clock_timestamp()")
                took = time.monotonic_ns() - before
                ns = (at - _EPOCH) // timedelta(microseconds=1) * 1000
                found.append(ClockMap(before + took // 2 - ns, took // 2))
            return found

        return min(await self.connection.do(tries), key=lambda clock: clock.error)

    async def committed(self) -> list[Entry]:
        """
        Read what was committed since the last call, in the order of the commits.

        The slot passes only what has arrived here, and so loses nothing with a connection. A
        crash of the server sets it back: what was read before comes again and is known.
        """
        async with self._reading:
            rows = await self.connection.do(self._read)
            if rows:
                self._read_to = rows[-1]["lsn"]
            found: list[Entry] = []
            lines = [(row["lsn"], row["xid"], row["data"]) for row in rows]
            fresh = [
                (xid, data) for lsn, xid, data in lines if f"{lsn} {data[:40]}" not in self._seen
            ]
            self._seen.update(f"{lsn} {data[:40]}" for lsn, _, data in lines)
            for transaction in transactions(fresh):
                # Commits are stamped before they are ordered: neighbours may be out of step.
                self._last_t = max(self._last_t, self.clock.monotonic(transaction.at))
                found += entries_of(transaction, self._last_t)
            return found

    async def _read(self, connection: asyncpg.Connection) -> list[asyncpg.Record]:
        if self._read_to is not None:
            await connection.execute(_GO_ON, self.slot, self._read_to)
        return await connection.fetch(_READ, self.slot)


@asynccontextmanager
async def open_database(
    admin_dsn: str, template: str, dsn: Callable[[str], str], *, moves_clock: bool
) -> AsyncIterator[Database]:
    """Copy the template, open its slot; drop both at the end with whoever is still in them."""
    name = f"scenario_{token_hex(6)}"
    admin = Connection(admin_dsn)
    try:
        copied = f"create database {name} template {template}"
        await admin.do(lambda c: c.execute(copied))
        database = Database(dsn(name), Connection(dsn(name)), slot=name)
        if moves_clock:
            await database.ask(_CLOCK)
        await database.ask("select pg_create_logical_replication_slot($1, 'test_decoding')", name)
        database.clock = await database.map_clock()
        try:
            yield database
        finally:
            database.close()
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(RECONNECT_S):
            await _drop(admin, name)
            admin.close()


async def _drop(admin: Connection, name: str) -> None:
    async def drop(connection: asyncpg.Connection) -> None:
        await connection.execute(
            "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1"
            " and active_pid is not null", name)  # fmt: skip
        await connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
            " where slot_name = $1", name)  # fmt: skip
        await connection.execute(f"drop database if exists {name} with (force)")

    await admin.do(drop)


async def connect(dsn: str) -> asyncpg.Connection:
    """Open a connection of ours, under a deadline."""
    return await asyncpg.connect(
        dsn, timeout=DEADLINE_S, command_timeout=DEADLINE_S,
        server_settings={"application_name": "harness", "timezone": "UTC"},
    )  # fmt: skip


async def prepare_template(dsn: str) -> None:
    """
    Put the witness into a migrated database, from which those of the runs are copied.

    Raises:
        HarnessError: the server keeps no logical log.

    """
    connection = await connect(dsn)
    try:
        if await connection.fetchval("show wal_level") != "logical":
            raise HarnessError("the server must run with wal_level=logical: see scenario/rig.py")
        await connection.execute((files("reliq.scenario.stage") / "witness.sql").read_text())
    finally:
        connection.terminate()
