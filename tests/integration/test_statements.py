"""Every SQL file against Postgres: headers are true, and migrations apply once."""

import re

import anyio
import asyncpg
import pytest

from reliq.errors import SchemaMismatch, StoreUnavailable
from reliq.postgres import migrate as migrate_module
from reliq.postgres.migrate import CONTRACT, migrate, migrations, why_not_current
from reliq.postgres.queries import names, parse, query

pytestmark = pytest.mark.anyio

WAITING = "select count(*) from pg_locks where not granted and locktype = 'relation'"

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
        assert sorted(applied) == [each.name for each in migrations()]
    finally:
        await connection.close()


async def test_an_edited_migration_is_refused(pool: asyncpg.Pool, dsn: str):
    await pool.execute("update reliq.migrations set checksum = 'x'")

    with pytest.raises(SchemaMismatch, match="another text"):
        await migrate(dsn)
    assert "another text" in (await why_not_current(pool) or "")


@pytest.mark.parametrize("migration", migrations(), ids=lambda migration: migration.name)
def test_a_migration_says_whether_older_versions_can_work_on_it(migration):
    [phase] = re.findall(r"^-- phase: (expand|contract)$", migration.text, re.MULTILINE)

    assert migration.name.endswith(CONTRACT) is (phase == "contract")


async def test_a_migration_gives_way_to_whoever_holds_its_tables(
    pool: asyncpg.Pool, dsn: str, monkeypatch: pytest.MonkeyPatch
):
    async with pool.acquire() as holder, pool.acquire() as other:
        await holder.execute("drop schema reliq cascade")
        [first, *_] = migrations()
        monkeypatch.setattr(migrate_module, "migrations", lambda: [first])
        await migrate(dsn)
        monkeypatch.undo()
        async with anyio.create_task_group() as tasks, holder.transaction():
            await holder.execute("insert into reliq.jobs (kind, key) values ('a', 'a')")
            tasks.start_soon(migrate, dsn)
            while not await other.fetchval(WAITING):
                await anyio.sleep(0.01)
            await other.execute("insert into reliq.jobs (kind, key) values ('b', 'b')")
            assert await why_not_current(pool) is not None
        assert await why_not_current(pool) is None


async def test_a_migration_that_finds_its_tables_held_for_too_long_says_so(
    pool: asyncpg.Pool, dsn: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(migrate_module, "PATIENCE_S", 0.0)
    await pool.execute("delete from reliq.migrations where number = 3")
    async with pool.acquire() as holder, holder.transaction():
        await holder.execute("lock table reliq.jobs in access share mode")
        with pytest.raises(StoreUnavailable, match="hold its tables: end them, and run `reliq"):
            await migrate(dsn)
