"""Every SQL file against Postgres: headers are true, and migrations apply once."""

import re

import anyio
import asyncpg
import pytest

from reliq.errors import SchemaMismatch
from reliq.postgres.migrate import migrate, why_not_current
from reliq.postgres.queries import names, parse, query

pytestmark = pytest.mark.anyio

ALIASES = {
    "int2": "smallint", "int4": "integer", "int8": "bigint", "bool": "boolean",
    "timestamp with time zone": "timestamptz",
}  # fmt: skip


def plain(type_name: str) -> str:
    """One name for each type, as headers write it."""
    base = type_name.removesuffix("[]")
    return ALIASES.get(base, base) + ("[]" if type_name.endswith("[]") else "")


@pytest.mark.parametrize("name", names())
async def test_a_header_says_what_postgres_says(pool: asyncpg.Pool, name: str):
    statement = query(name)
    async with pool.acquire() as connection:
        prepared = await connection.prepare(statement.text)
        parameters = [plain(parameter.name) for parameter in prepared.get_parameters()]
        columns = [(column.name, plain(column.type.name)) for column in prepared.get_attributes()]

    assert [plain(kind) for _, kind in statement.parameters] == parameters
    assert list(statement.columns) == columns


@pytest.mark.parametrize("name", names())
async def test_a_statement_names_the_indexes_it_reads_and_they_exist(pool: asyncpg.Pool, name: str):
    source = "\n".join(query(name).header)
    told = re.search(r"Reads: +index (.+)", source)
    if told is None:
        return
    exist = {row["indexname"] for row in await pool.fetch("select indexname from pg_indexes")}
    assert {item.strip() for item in told[1].split(",")} <= exist


def test_a_statement_keeps_its_name_and_parameters_on_the_wire():
    assert query("settle_succeeded").text.startswith("/* settle_succeeded $1 ids $2 fences */")


@pytest.mark.parametrize(
    "source",
    ["select 1", "-- other: x\nselect 1", "-- bad: x\n--   $2  a  text\nselect 1"],
)
def test_a_file_with_a_wrong_header_is_refused(source: str):
    with pytest.raises(ValueError, match="must"):
        parse("bad", source)


async def test_migrating_five_times_at_once_applies_each_file_once(dsn: str):
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("drop schema reliq cascade")
        applied: list[str] = []

        async def run() -> None:
            applied.extend(await migrate(dsn))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(run)
        assert sorted(applied) == ["0001_first_tables", "0008_families"]
    finally:
        await connection.close()


async def test_an_edited_migration_is_refused(pool: asyncpg.Pool, dsn: str):
    await pool.execute("update reliq.migrations set checksum = 'x'")

    with pytest.raises(SchemaMismatch, match="another text"):
        await migrate(dsn)
    assert "another text" in (await why_not_current(pool) or "")
