"""The shipped SQL on one connection: statements are calls, and the clock stands still."""

import asyncio
import json
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import asyncpg

from reliq.postgres.migrate import migrations
from reliq.postgres.queries import names, query
from tests.model.rows import ALERT_PLACES, TABLES, Row, Tables

CLOCK = """
    create or replace function reliq.now() returns timestamptz
      language sql stable parallel safe
      return current_setting('reliq.moment')::timestamptz
"""
SET_CLOCK = "select set_config('reliq.moment', $1, false)"

SETTINGS = {
    "reliq.moment": "-infinity",
    "plan_cache_mode": "force_generic_plan",
    "synchronous_commit": "off",
}

EMPTY = f"""
    delete from reliq.attempts;
    delete from reliq.jobs;
    delete from reliq.events;
    delete from reliq.job_keys;
    delete from reliq.event_keys;
    delete from reliq.job_groups;
    delete from reliq.parents;
    delete from reliq.effect_keys;
    delete from reliq.limits;
    delete from reliq.pauses;
    alter sequence reliq.jobs_id_seq restart;
    alter sequence reliq.events_id_seq restart;
    update reliq.reaper set walked_to = 'epoch';
    delete from reliq.alert_places where place > {ALERT_PLACES};
    update reliq.alert_places set taken_in = -1
"""
"""Not truncate: that makes new files, and every statement is planned anew."""

CHANGED = " union all ".join(
    f"""
    select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, '{name}',
           (select count(*) from reliq.{name}),
           array(select row({", ".join(table.columns)}) from reliq.{name}
                 where xmin::text::bigint >= $1)
    """
    for name, table in TABLES.items()
)
"""Where transactions end, and of each table: how many rows, and those written since $1 began."""


class Difference(AssertionError):
    """The shipped SQL and the model do not agree."""


def shipped() -> dict[str, str]:
    """Load every migration and every statement, by name."""
    return {each.name: each.text for each in migrations()} | {
        name: query(name).text for name in names()
    }


@dataclass(slots=True, kw_only=True)
class Database:
    """
    One connection to a database of its own.

    `calls` counts the statements that were run, and `calls_to_difference` those that it took
    to see the first difference.
    """

    texts: Mapping[str, str]
    connection: asyncpg.Connection
    loop: asyncio.AbstractEventLoop
    calls: int = 0
    calls_to_difference: int | None = None
    _moment: datetime | None = None
    _tables: Tables = field(default_factory=dict)
    _read_to: int = 0

    def empty(self) -> None:
        """Forget everything; the numbers begin at 1 again."""
        self._run(self.connection.execute(EMPTY))
        self._tables = {table: {} for table in TABLES}

    def call(self, name: str, now: datetime, *arguments: object) -> list[Row]:
        """
        Run one shipped statement at `now`.

        Raises:
            Difference: Postgres refuses, which no call of the machine's deserves.

        """
        self.calls += 1
        if now != self._moment:
            self._run(self.connection.fetch(SET_CLOCK, now.isoformat()))
            self._moment = now
        try:
            rows = self._run(self.connection.fetch(self.texts[name], *arguments))
        except asyncpg.PostgresError as error:
            raise self.difference(f"{name} failed: {error}") from error
        return [tuple(row) for row in rows]

    def copy(self, table: str, columns: Sequence[str], records: Sequence[Row]) -> None:
        """Copy rows in, as the store does where there are many."""
        self._run(
            self.connection.copy_records_to_table(
                table, schema_name="reliq", columns=columns, records=records
            )
        )

    def read(self) -> Tables:
        """Bring the copy of all tables up to date, by the rows that changed, and return it."""
        since = self._read_to
        for end, name, rows, changed in self._run(self.connection.fetch(CHANGED, since)):
            self._read_to = end
            copy, key = self._tables[name], TABLES[name].key
            copy.update((row[:key], row) for row in changed)
            if rows != len(copy):  # some are gone, and nothing else tells which
                self._tables[name] = self._read_all(name)
        return self._tables

    def _read_all(self, name: str) -> dict[Row, Row]:
        table = TABLES[name]
        found = self._run(
            self.connection.fetch(f"select {', '.join(table.columns)} from reliq.{name}")
        )
        return {row[: table.key]: row for row in map(tuple, found)}

    def difference(self, text: str) -> Difference:
        """Make the error to raise, and note when it was first made."""
        if self.calls_to_difference is None:
            self.calls_to_difference = self.calls
        return Difference(text)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)


@contextmanager
def open_database(dsn: str, texts: Mapping[str, str]) -> Iterator[Database]:
    """Connect, and make the schema anew from `texts`, in which every statement must parse."""
    with closing(asyncio.new_event_loop()) as loop:
        connection = loop.run_until_complete(
            asyncpg.connect(dsn, timeout=10, server_settings=SETTINGS)
        )
        try:
            loop.run_until_complete(_prepare(connection, texts))
            yield Database(texts=texts, connection=connection, loop=loop)
        finally:
            loop.run_until_complete(connection.close(timeout=10))


async def _prepare(connection: asyncpg.Connection, texts: Mapping[str, str]) -> None:
    await connection.execute("drop schema reliq cascade")
    for each in migrations():
        await connection.execute(texts[each.name])
    await connection.execute(CLOCK)
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", format="binary",
        encoder=lambda value: b"\x01" + json.dumps(value).encode(),
        decoder=lambda value: json.loads(value[1:]),
    )  # fmt: skip
    for name in names():
        await connection.prepare(texts[name])
