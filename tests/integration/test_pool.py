"""What a connection of the product asks the database, and what it has set."""

import asyncpg
import pytest

from reliq.postgres.pool import Database, Session
from tests.fixtures.postgres import fetch_value

pytestmark = pytest.mark.anyio

ARRAYS = "select $1::bigint[] as ids, $2::interval[] as pauses"


@pytest.fixture
def database(dsn: str, monkeypatch) -> Database:
    monkeypatch.setattr(Session, "_learned", {})
    return Database(dsn=dsn)


async def asked(database: Database, statement: str, *values) -> tuple[list[str], asyncpg.Record]:
    """Open a connection and run the statement: what the server was asked, and the row."""
    queries: list[str] = []
    connection = await database.connect("reliq tests")
    try:
        with connection.query_logger(lambda record: queries.append(record.query)):
            row = await connection.fetchrow(statement, *values)
    finally:
        await connection.close()
    return queries, row


async def test_only_the_first_connection_asks_what_arrays_are_made_of(database):
    first, _ = await asked(database, ARRAYS, [1], [])
    second, row = await asked(database, ARRAYS, [1, 2], [])

    assert len(first) > 1
    assert second == [ARRAYS]
    assert row["ids"] == [1, 2]


async def test_types_of_an_application_are_asked_for_by_each_connection(database, dsn):
    await fetch_value(dsn, "create type pair as (a int)")
    _, before = await asked(database, "select array[row(1)::pair] as pairs")
    await fetch_value(dsn, "alter type pair add attribute b int")

    _, after = await asked(database, "select array[row(1, 2)::pair] as pairs")

    assert (before["pairs"], after["pairs"]) == ([(1,)], [(1, 2)])


async def test_plans_are_held_to_the_indexes_and_not_compiled(database):
    names = ("enable_seqscan", "jit", "plan_cache_mode")

    _, row = await asked(database, f"select {', '.join(f'current_setting({n!r})' for n in names)}")

    assert tuple(row) == ("off", "off", "force_generic_plan")
