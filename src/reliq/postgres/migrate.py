"""
Bring the tables to the version this package needs: numbered files, forward only.

Each file is one transaction, recorded with its checksum; all of them run under an advisory
lock, so that any number of processes may migrate at once. A merged file is never edited: a
checksum that differs is refused.
"""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

import asyncpg

from reliq.errors import SchemaMismatch
from reliq.postgres.failures import translated
from reliq.postgres.pool import Connection

_LOCK = 0x72656C6971  # "reliq"

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
        SchemaMismatch: an applied file is not the one this version has, or is newer than all.
        StoreUnavailable: the database did not answer.

    """
    applied = []
    with translated():
        # Nothing is prepared by name: behind a transaction pooler names outlive their owners.
        connection = await asyncpg.connect(dsn, timeout=10, statement_cache_size=0)
        try:
            async with connection.transaction():
                await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
                await connection.execute(_LEDGER)
                known = await _known(connection)
                for migration in migrations():
                    if migration.number in known:
                        continue
                    await connection.execute(migration.text)
                    await connection.execute(
                        "insert into reliq.migrations (number, name, checksum) values ($1, $2, $3)",
                        migration.number,
                        migration.name,
                        migration.checksum,
                    )
                    applied.append(migration.name)
        finally:
            await connection.close(timeout=5)
    return applied


async def _known(connection: asyncpg.Connection) -> set[int]:
    rows = await connection.fetch("select number, checksum from reliq.migrations")
    applied = {row["number"]: row["checksum"] for row in rows}
    if (problem := mismatch(applied)) is not None:
        raise SchemaMismatch(problem)
    return set(applied)


def mismatch(applied: dict[int, str]) -> str | None:
    """Compare what a database has, by number, with what this version brings; None if it fits."""
    ours = {migration.number: migration for migration in migrations()}
    if newer := applied.keys() - ours.keys():
        return (
            f"the database is at migration {max(newer)} and this reliq knows only "
            f"{max(ours)}: deploy the newer version"
        )
    for number, checksum in applied.items():
        if ours[number].checksum != checksum:
            return f"migration {ours[number].name} was applied with another text: restore it"
    return None


async def why_not_current(connection: Connection | asyncpg.Pool) -> str | None:
    """
    Say why the schema is not the one this version needs; None when it is.

    Raises:
        StoreUnavailable: the database did not answer.

    """
    with translated():
        try:
            rows = await connection.fetch("select number, checksum from reliq.migrations")
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
            rows = []
    applied = {row["number"]: row["checksum"] for row in rows}
    lacking = [migration.name for migration in migrations() if migration.number not in applied]
    if lacking:
        return f"{', '.join(lacking)} not applied: run `reliq migrate`"
    return mismatch(applied)
