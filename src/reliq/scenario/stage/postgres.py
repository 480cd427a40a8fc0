"""
A database of the run's own, and what stands in it: read by SQL of ours.

The product's statements are not used: they may be what is wrong. Of the product's tables only
names are known, and they are in this file.
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any, Final

import anyio
import asyncpg

from reliq.scenario.history import Entry
from reliq.servers import PostgresServer

DEADLINE_S: Final = 10.0
"""For each connection and each statement of ours."""

Row = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_DRILL: Final = """
create schema drill;
create table drill.effects (
  job_id bigint not null, key text not null, attempt int not null,
  n bigint generated always as identity, at timestamptz not null default clock_timestamp()
);
"""
# Numbers are not given back: a gap before n is a write that was tried and rolled back.

_OPEN: Final = "select count(*) from reliq.jobs where state in ('queued', 'running')"

_EVENTS: Final = """
select id as event, dedup_key as key, source, received_at as at from reliq.events
"""

_JOBS: Final = """
select id as job, kind, key, state, attempt, fence, event_id as event, worker, claimed_at,
       finished_at, dead_reason as reason, last_error as error, created_at as at
from reliq.jobs
"""

_ATTEMPTS: Final = """
select job_id as job, fence, attempt, kind, worker, started_at, ended_at, ended, buried, error
from reliq.attempts
"""

_EFFECTS: Final = "select n, job_id as job, key, attempt, at from drill.effects"

_WORDS: Final = {
    "failed": "failed",
    "timed_out": "failed",
    "again": "again",
    "handed_back": "release",
    "lease_lost": "lease-lost",
}


@dataclass(frozen=True, slots=True)
class ClockMap:
    """The database's clock on ours: `offset` ns are added, `error` ns is how wrong that can be."""

    offset: int
    error: int

    def monotonic(self, at: datetime) -> int:
        """Place a moment of the database on our monotonic clock."""
        return _nanoseconds(at) + self.offset


@dataclass(frozen=True, slots=True)
class Database:
    """An empty database (but for the table of drilled effects) and our own connection to it."""

    dsn: str
    connection: asyncpg.Connection

    async def count_open(self) -> int:
        """Count the jobs that have not come to an end."""
        return int(await self.connection.fetchval(_OPEN))

    async def map_clock(self) -> ClockMap:
        """Compare the clocks; of several tries the quickest is the most exact."""
        tries = []
        for _ in range(7):
            before = time.monotonic_ns()
            at = await self.connection.fetchval("select clock_timestamp()")
            took = time.monotonic_ns() - before
            tries.append(ClockMap(before + took // 2 - _nanoseconds(at), took // 2))
        return min(tries, key=lambda clock: clock.error)

    async def read(self, clock: ClockMap) -> list[Entry]:
        """Read all rows at one moment, as entries of the history."""
        async with self.connection.transaction(isolation="repeatable_read", readonly=True):
            events = await self._rows(_EVENTS)
            jobs = await self._rows(_JOBS)
            attempts = await self._rows(_ATTEMPTS)
            effects = await self._rows(_EFFECTS)
        found = [_entry("event", row, row["at"], clock) for row in events]
        found += [_entry("job", row, row["at"], clock) for row in jobs]
        found += [_entry("effect", row, row["at"], clock) for row in effects]
        for row in jobs:
            found += _last_claim(row, clock)
        for row in attempts:
            found += _attempt(row, clock)
        return found

    async def _rows(self, statement: str) -> list[Row]:
        return [dict(row) for row in await self.connection.fetch(statement)]


@asynccontextmanager
async def open_database(server: PostgresServer) -> AsyncIterator[Database]:
    """Make a database, and drop it at the end with whoever is still in it."""
    name = f"scenario_{token_hex(6)}"
    async with _connected(server.dsn("postgres")) as admin:
        await admin.execute(f"create database {name}")
        try:
            async with _connected(server.dsn(name)) as connection:
                await connection.execute(_DRILL)
                yield Database(server.dsn(name), connection)
        finally:
            with anyio.CancelScope(shield=True):
                await admin.execute(f"drop database {name} with (force)")


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn, timeout=DEADLINE_S, command_timeout=DEADLINE_S)
    try:
        yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await connection.close(timeout=DEADLINE_S)


def _last_claim(job: Row, clock: ClockMap) -> Iterator[Entry]:
    # The claim that runs or that succeeded stands on the job; all others are in attempts.
    if job["state"] in {"running", "succeeded"} and job["claimed_at"] is not None:
        yield _entry("claim", _claimed(job), job["claimed_at"], clock)
        if job["state"] == "succeeded":
            yield _entry("succeeded", job, job["finished_at"], clock)


def _attempt(row: Row, clock: ClockMap) -> Iterator[Entry]:
    if row["started_at"] is not None:
        yield _entry("claim", _claimed(row), row["started_at"], clock)
    yield _entry(_WORDS[row["ended"]], row, row["ended_at"], clock)
    if row["buried"]:
        yield _entry("dead", row, row["ended_at"], clock)


def _claimed(row: Row) -> Row:
    """Leave out what was not known yet when the job was claimed."""
    return {name: row[name] for name in ("job", "fence", "attempt", "kind", "worker")}


def _entry(e: str, row: Row, at: datetime, clock: ClockMap) -> Entry:
    fields = {name: value for name, value in row.items() if not name.endswith("at")}
    return Entry(0, clock.monotonic(at), "rows", fields.get("worker") or "", e, fields)


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
