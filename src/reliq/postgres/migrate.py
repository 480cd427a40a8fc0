"""
Bring the tables to the version this package needs: numbered files, forward only.

Each file is one transaction, recorded with its checksum, under an advisory lock, so that any
number of processes may migrate at once, also while workers and receivers run: a migration that
has to wait for a table gives way and tries again, because all others would wait behind it. A
merged file is never edited: a checksum that differs is refused.

A database that is newer is no reason to refuse it, as long as its tables only grew: who was
deployed before goes on, and may be started again. What takes something away is the `contract` of
a later version, says so at the end of its file's name, and is refused.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import anyio
import asyncpg

from reliq.errors import SchemaMismatch, StoreUnavailable
from reliq.postgres.failures import translated
from reliq.postgres.pool import Connection

PATIENCE_S: Final = 60.0
"""For the transactions that hold a table to end."""

CONTRACT: Final = "_contract"
"""Ends the name of a migration that takes away what older versions use."""

_LOCK = 0x72656C6971  # "reliq"

_GIVE_WAY = "set local lock_timeout = 500"
"""Milliseconds; less than Postgres's deadlock_timeout, so that it is never a worker who must yield."""

_PAUSE_S = 0.5

_LEDGER = """
create schema if not exists reliq;
create table if not exists reliq.migrations (
  number     int primary key,
  name       text not null,
  checksum   text not null,
  applied_at timestamptz not null default now()
);
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, its name and its text."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """The SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    """List the files this version brings, in order."""
    found = (files("reliq.postgres") / "migrations").iterdir()
    return sorted(
        (
            Migration(int(item.name[:4]), item.name.removesuffix(".sql"), item.read_text())
            for item in found
            if item.name.endswith(".sql")
        ),
        key=lambda migration: migration.number,
    )


async def migrate(dsn: str) -> list[str]:
    """
    Apply what is missing and name it.

    Raises:
        SchemaMismatch: an applied file is not the one this version has, or took away what it uses.
        StoreUnavailable: the database did not answer, or others held a table for PATIENCE_S.

    """
    applied = []
    with translated():
        # Nothing is prepared by name: behind a transaction pooler names outlive their owners.
        connection = await asyncpg.connect(dsn, timeout=10, statement_cache_size=0)
        try:
            while (name := await _apply_next(connection)) is not None:
                applied.append(name)
        finally:
            await connection.close(timeout=5)
    return applied


async def _apply_next(connection: asyncpg.Connection) -> str | None:
    """Apply the first that is missing, as soon as nobody holds its tables; None when all are there."""
    gives_up_at = anyio.current_time() + PATIENCE_S
    while True:
        try:
            async with connection.transaction():
                await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
                await connection.execute(_LEDGER)
                known = await _known(connection)
                lacking = [each for each in migrations() if each.number not in known]
                if not lacking:
                    return None
                await _apply(connection, lacking[0])
                return lacking[0].name
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            if anyio.current_time() >= gives_up_at:
                raise StoreUnavailable(
                    f"a migration waited {PATIENCE_S:g} s for transactions that hold its tables: "
                    "end them, and run `reliq migrate` again"
                ) from error
        await anyio.sleep(_PAUSE_S)


async def _apply(connection: asyncpg.Connection, migration: Migration) -> None:
    await connection.execute(_GIVE_WAY)
    await connection.execute(migration.text)
    await connection.execute(
        "insert into reliq.migrations (number, name, checksum) values ($1, $2, $3)",
        migration.number,
        migration.name,
        migration.checksum,
    )


_READ = "select number, name, checksum from reliq.migrations"


async def _known(connection: asyncpg.Connection) -> set[int]:
    rows = await connection.fetch(_READ)
    if (problem := mismatch(rows)) is not None:
        raise SchemaMismatch(problem)
    return {row["number"] for row in rows}


def mismatch(applied: Iterable[asyncpg.Record]) -> str | None:
    """Compare what a database has with what this version brings; None if that can work with it."""
    ours = {migration.number: migration for migration in migrations()}
    for row in applied:
        known = ours.get(row["number"])
        if known is None and row["name"].endswith(CONTRACT):
            return (
                f"migration {row['name']} took away what this reliq works with: "
                "deploy the newer version"
            )
        if known is not None and known.checksum != row["checksum"]:
            return f"migration {known.name} was applied with another text: restore it"
    return None


async def why_not_current(connection: Connection | asyncpg.Pool) -> str | None:
    """
    Say why this version cannot work with the schema; None when it can.

    Raises:
        StoreUnavailable: the database did not answer.

    """
    with translated():
        try:
            rows = await connection.fetch(_READ)
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
            rows = []
    applied = {row["number"] for row in rows}
    lacking = [migration.name for migration in migrations() if migration.number not in applied]
    if lacking:
        return f"{', '.join(lacking)} not applied: run `reliq migrate`"
    return mismatch(rows)
