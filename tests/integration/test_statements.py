"""Every SQL file against Postgres: headers are true, plans use their index, settling is HOT."""

import json
import re
from datetime import UTC, datetime

import anyio
import asyncpg
import pytest

from reliq.errors import SchemaMismatch
from reliq.postgres.migrate import migrate, why_not_current
from reliq.postgres.queries import names, parse, query
from tests.fixtures.store import LEASE, OpenQueue

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


# Plans ------------------------------------------------------------------------------------------


@pytest.fixture
async def full(pool: asyncpg.Pool) -> asyncpg.Pool:
    """200,000 jobs of every state, and their keys."""
    await pool.execute(
        """
        insert into reliq.jobs (kind, key, state, ready, run_at, fence, reap_at, lease_until,
                                finished_at, event_id)
        select 'job', 'k' || n,
               case when n % 4 < 2 then 'succeeded' when n % 4 = 2 then 'running' else 'queued' end,
               n % 4 = 3, reliq.now() + make_interval(secs => n - 100000), 1,
               case when n % 4 < 3 then reliq.now() + make_interval(secs => n) end,
               case when n % 4 = 2 then reliq.now() + make_interval(secs => n) end,
               case when n % 4 < 2 then reliq.now() end, null
        from generate_series(1, 200000) n;
        """
    )
    await pool.execute(
        """
        insert into reliq.job_keys
        select 'job', 'k' || n, n, reliq.now() + interval '1 day' from generate_series(1, 200000) n;
        """
    )
    await pool.execute(
        """
        insert into reliq.event_keys
        select 'site', 'k' || n, n, reliq.now() + interval '1 day' from generate_series(1, 200000) n;
        """
    )
    await pool.execute("analyze reliq.jobs, reliq.job_keys, reliq.event_keys")
    return pool


def nodes(plan: dict) -> list[dict]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


async def plan(pool: asyncpg.Pool, mode: str, statement: str, *arguments: object) -> list[dict]:
    """The nodes of a statement's plan, as the product's connections plan it."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(f"set local plan_cache_mode = '{mode}'")
        [row] = await connection.fetch(f"explain (format json) {statement}", *arguments)
        [told] = json.loads(row[0])
        return nodes(told["Plan"])


def indexes(found: list[dict]) -> set[str]:
    return {node["Index Name"] for node in found if "Index Name" in node}


CASES = {
    "claim_jobs": {"jobs_ready", "jobs_pkey"},
    "renew_leases": {"jobs_pkey"},
    "settle_succeeded": {"jobs_pkey"},
    "settle_queued": {"jobs_pkey"},
    "settle_dead": {"jobs_pkey"},
    "reap_jobs": {"jobs_reap"},
    "hand_back_unheard": {"jobs_reap"},
    "find_lanes": {"jobs_ready"},
    "store_event": {"event_keys_pkey"},
}


def arguments(name: str) -> tuple[object, ...]:
    ids, fences = list(range(1, 101)), [1] * 100
    head = datetime(2000, 1, 1, tzinfo=UTC)
    return {
        "claim_jobs": (100, LEASE, "w", ["default"], [5], [head], [0], ["job"], [8]),
        "renew_leases": (ids, fences, LEASE),
        "settle_succeeded": (ids, fences),
        "settle_queued": (ids, fences, [LEASE] * 100, ["failed"] * 100, ["e"] * 100, [None] * 100),
        "settle_dead": (
            ids, fences, ["permanent"] * 100, ["failed"] * 100, ["e"] * 100, [None] * 100,
            ["f"] * 100, True, LEASE,
        ),
        "reap_jobs": (10_000, LEASE, True, LEASE),
        "hand_back_unheard": ("w", ids, fences),
        "find_lanes": (),
        "store_event": ("site", "k7", "{}", b"", None, LEASE, [], [], [], [], [], []),
    }[name]  # fmt: skip


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
async def test_no_hot_statement_reads_a_table_in_sequence(full: asyncpg.Pool, mode: str):
    for name, expected in CASES.items():
        found = await plan(full, mode, query(name).text, *arguments(name))

        scanned = {
            node.get("Relation Name") for node in found if node["Node Type"] == "Seq Scan"
        } - {"reaper"}
        assert not scanned, f"{name} reads {scanned} in sequence"
        assert expected <= indexes(found), f"{name} uses {indexes(found)}"


async def test_a_claim_does_not_sort_or_walk_what_is_not_due(full: asyncpg.Pool):
    found = await plan(
        full, "force_generic_plan", query("claim_jobs").text, *arguments("claim_jobs")
    )

    assert "Sort" not in {node["Node Type"] for node in found}
    [walk] = [node for node in found if node.get("Index Name") == "jobs_ready"]
    assert "run_at <= statement_timestamp()" in walk["Index Cond"], "the clock is not inlined"


async def test_enqueue_looks_its_key_up_by_index(full: asyncpg.Pool):
    async with full.acquire() as connection, connection.transaction():
        before = await connection.fetchval(
            "select seq_scan from pg_stat_xact_user_tables where relname = 'job_keys'"
        )
        await connection.fetch("select reliq.enqueue('job', '{}', 'k7')")
        after = await connection.fetchval(
            "select seq_scan from pg_stat_xact_user_tables where relname = 'job_keys'"
        )
    assert before == after


async def test_a_plan_made_while_the_table_was_empty_stays_good_when_it_fills(
    pool: asyncpg.Pool,
):
    """Counted in pages: 831 as it is, 2,541 where the planner may read in sequence."""
    async with pool.acquire() as connection:
        claim = await connection.prepare(query("claim_jobs").text)
        for _ in range(20):
            await claim.fetch(*arguments("claim_jobs"))
        await connection.execute(
            "insert into reliq.jobs (kind, key, run_at) select 'job', 'k' || n,"
            " reliq.now() + make_interval(secs => n / 1000) from generate_series(1, 60000) n"
        )
        async with connection.transaction():
            before = await pages(connection)
            claimed = await claim.fetch(*arguments("claim_jobs"))
            touched = await pages(connection) - before

    assert 0 < len(claimed) <= 100
    assert touched < 1_200


async def pages(connection: asyncpg.Connection) -> int:
    row = await connection.fetchrow(
        "select coalesce(sum(pg_stat_get_xact_blocks_fetched(oid)), 0)::bigint as n from pg_class"
        " where relnamespace = 'reliq'::regnamespace"
    )
    return row["n"]


# Updates ----------------------------------------------------------------------------------------


async def test_no_index_names_a_column_that_settling_or_renewing_changes(pool: asyncpg.Pool):
    defined = await pool.fetch(
        "select indexname, indexdef from pg_indexes where tablename = 'jobs'"
    )
    changed = r"\b(state|lease_until|finished_at|fence|attempt|lost_leases|last_error|alone)\b"
    assert [row["indexname"] for row in defined if re.search(changed, row["indexdef"])] == []


async def test_settling_is_a_hot_update(pool: asyncpg.Pool, open_queue: OpenQueue):
    await pool.execute(
        "insert into reliq.jobs (kind, key) select 'job', 'k' || n from generate_series(1, 5000) n"
    )
    queue = open_queue()
    settled = 0
    async with pool.acquire() as connection:
        while claims := await queue.claim_jobs(500):
            async with connection.transaction():
                ids = [claim.job_id for claim in claims]
                await connection.fetch(
                    query("settle_succeeded").text, ids, [claim.fence for claim in claims]
                )
                hot = await connection.fetchrow(
                    "select n_tup_upd, n_tup_hot_upd from pg_stat_xact_user_tables"
                    " where relname = 'jobs'"
                )
            settled += hot["n_tup_hot_upd"]
    assert settled / 5000 >= 0.85


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
        assert sorted(applied) == ["0001_first_tables"]
    finally:
        await connection.close()


async def test_an_edited_migration_is_refused(pool: asyncpg.Pool, dsn: str):
    await pool.execute("update reliq.migrations set checksum = 'x'")

    with pytest.raises(SchemaMismatch, match="another text"):
        await migrate(dsn)
    assert "another text" in (await why_not_current(pool) or "")
