"""What a job costs Postgres, in units that no machine changes: statements, pages, rows, bytes."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import asyncpg
import pytest

from reliq.domain.job import Claim
from reliq.domain.outcome import Settlement, Succeed, SucceedWith
from reliq.postgres.queries import query
from reliq.postgres.queue import PostgresQueue
from tests.fixtures.cases import CASES
from tests.fixtures.filled import HELD, fill
from tests.fixtures.plans import connected, pages
from tests.fixtures.store import OpenQueue, buried

pytestmark = pytest.mark.anyio


@dataclass
class Sum:
    """What the calls of one statement came to."""

    calls: int = 0
    rows: int = 0
    pages: int = 0
    updates: int = 0
    hot_updates: int = 0

    @property
    def pages_each(self) -> float:
        return self.pages / self.rows

    @property
    def hot_share(self) -> float:
        return self.hot_updates / self.updates


@dataclass
class Meter:
    """A pool of one connection that measures: a transaction for each statement, as without it."""

    connection: asyncpg.Connection
    sums: dict[str, Sum] = field(default_factory=lambda: defaultdict(Sum))

    async def fetch(self, text: str, *arguments: object) -> list[asyncpg.Record]:
        async with self.connection.transaction():
            before, asked = await self._updates(), await pages(self.connection)
            rows: list[asyncpg.Record] = await self.connection.fetch(text, *arguments)
            asked, after = await pages(self.connection) - asked, await self._updates()
        _, name, *_ = text.split()
        total = self.sums[name]
        total.calls += 1
        total.rows += len(rows)
        total.pages += asked
        total.updates += after[0] - before[0]
        total.hot_updates += after[1] - before[1]
        return rows

    async def _updates(self) -> asyncpg.Record:
        row = await self.connection.fetchrow(
            "select n_tup_upd, n_tup_hot_upd from pg_stat_xact_user_tables"
            " where relid = 'reliq.jobs'::regclass"
        )
        assert row is not None
        return row

    def take(self, name: str) -> Sum:
        """Tell what a statement came to since this was last asked."""
        return self.sums.pop(name)

    @property
    def pages(self) -> int:
        return sum(total.pages for total in self.sums.values())


@pytest.fixture
async def meter(dsn: str) -> AsyncIterator[Meter]:
    async with connected(dsn) as connection:
        yield Meter(connection)


@pytest.fixture
def queue(open_queue: OpenQueue, meter: Meter) -> PostgresQueue:
    return open_queue(pool=meter)


async def enqueue(meter: Meter, number: int) -> None:
    await meter.connection.execute(
        "insert into reliq.jobs (kind, key, run_at) select 'job', 'k' || n,"
        " reliq.now() - interval '1 hour' + n * interval '1 ms' from generate_series(1, $1) n",
        number,
    )


async def finish(queue: PostgresQueue, claims: Sequence[Claim]) -> None:
    assert not (await queue.settle_jobs([(claim, Succeed()) for claim in claims])).lost


async def drain(queue: PostgresQueue, batch: int) -> None:
    while claims := await queue.claim_jobs(batch):
        await finish(queue, claims)


async def wal(connection: asyncpg.Connection) -> int:
    position: int = await connection.fetchval(
        "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
    )
    return position


async def test_a_thousand_jobs_cost_a_statement_per_batch_and_two_updates_each(
    meter: Meter, queue: PostgresQueue
):
    """
    In batches of 100; the last claim finds nothing. A job costs 517 bytes of log and 12.1 pages,
    16.1 before Postgres 17.

    Full-page images are not among the bytes: the tests' server writes none.
    """
    await enqueue(meter, 1_000)
    await meter.connection.execute("checkpoint")
    before = await wal(meter.connection)
    await drain(queue, 100)
    written = await wal(meter.connection) - before

    assert meter.sums.keys() == {"find_lanes", "claim_jobs", "settle_succeeded"}
    claims, settles = meter.sums["claim_jobs"], meter.sums["settle_succeeded"]
    assert (claims.calls, claims.rows, claims.updates) == (11, 1_000, 1_000)
    assert (settles.calls, settles.rows, settles.updates) == (10, 1_000, 1_000)
    assert meter.sums["find_lanes"].calls <= claims.calls
    assert written / 1_000 <= 700
    assert meter.pages / 1_000 <= 20


async def test_a_batch_ten_times_as_large_asks_for_no_more_pages(
    meter: Meter, queue: PostgresQueue
):
    """12,123 of a thousand jobs, against 12,098 in batches of 100."""
    spent = {}
    for batch in (100, 1_000):
        await meter.connection.execute("truncate reliq.jobs cascade")
        await enqueue(meter, 1_000)
        await drain(queue, batch)
        spent[batch] = sum(meter.take(name).pages for name in ("claim_jobs", "settle_succeeded"))

    assert spent[1_000] <= 1.02 * spent[100]


async def test_a_claim_costs_the_same_beside_two_million_jobs(
    meter: Meter, queue: PostgresQueue, open_queue: OpenQueue, full_copy: str
):
    """
    12.3 pages a job against 10.3 alone: their primary key is one level deeper, asked twice; three
    times before Postgres 18, 15.2 against 12.2.

    Of them a million wait for their time, and 100,000 behind the heads of 10,000 groups.
    """
    await fill(meter.connection, 0)
    await meter.connection.execute("vacuum analyze")
    async with connected(full_copy) as connection:
        waiting = "select count(*) from reliq.jobs where ready"
        behind = "select count(*), count(distinct group_key) from reliq.jobs where blocked"
        assert await connection.fetchval(waiting) >= 1_000_000
        assert tuple(await connection.fetchrow(behind)) == (100_000, 10_000)
        beside = Meter(connection)
        for place in (queue, open_queue(pool=beside)):
            for _ in range(10):
                assert len(await place.claim_jobs(100)) == 100

    alone, full = meter.take("claim_jobs").pages_each, beside.take("claim_jobs").pages_each
    asked = 2 if meter.connection.get_server_version().major >= 18 else 3
    assert full <= alone + asked + 0.3, (full, alone)


async def test_a_claim_behind_its_cursor_does_not_walk_what_an_old_snapshot_keeps(
    dsn: str, meter: Meter, queue: PostgresQueue
):
    """
    After 20,000 jobs a claim asks for 9.6 pages a job, and the first one did for 8.4.

    From the head of the lane it is 16.4: each job claimed before left a dead entry.
    """
    await enqueue(meter, 20_300)
    async with connected(dsn) as reader, reader.transaction(isolation="repeatable_read"):
        await reader.fetch("select from reliq.jobs limit 1")
        first = await pages_each(meter, queue)
        queue._lanes_found_at = queue._lanes._from_head_at = float("inf")  # no beat comes
        for _ in range(20):
            await finish(queue, await queue.claim_jobs(1_000))
        meter.take("claim_jobs")
        behind = await pages_each(meter, queue)
        queue._lanes.rewind(0)
        from_head = await pages_each(meter, queue)

    assert behind <= 1.3 * first
    assert from_head >= 1.5 * first, "the old snapshot kept nothing"


async def pages_each(meter: Meter, queue: PostgresQueue) -> float:
    """Claim and settle a hundred jobs; tell what a claimed one asked for."""
    await finish(queue, await queue.claim_jobs(100))
    return meter.take("claim_jobs").pages_each


# Updates in place -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settlement", "name", "share_min"),
    [
        (Succeed(), "settle_succeeded", 0.85),
        (SucceedWith('{"sent": 1}'), "settle_with_result", 0.70),
        (buried(), "settle_dead", 0.70),
    ],
)
async def test_settling_is_a_hot_update(
    meter: Meter, queue: PostgresQueue, settlement: Settlement, name: str, share_min: float
):
    """87 % of those that succeed stay on their page; 78 % of those that grow, by an error or a result."""
    await enqueue(meter, 5_000)
    while claims := await queue.claim_jobs(500):
        await queue.settle_jobs([(claim, settlement) for claim in claims])

    assert meter.sums[name].updates >= 5_000
    assert meter.sums[name].hot_share >= share_min


async def test_renewing_is_a_hot_update(meter: Meter, queue: PostgresQueue):
    """Of twenty renewals of a thousand leases more than 99 % are."""
    await enqueue(meter, 1_000)
    claims = await queue.claim_jobs(1_000)
    for _ in range(20):
        assert len(await queue.renew_leases([(c.job_id, c.fence) for c in claims])) == 1_000

    assert meter.sums["renew_leases"].hot_share >= 0.60


async def test_no_index_names_a_column_that_settling_or_renewing_changes(meter: Meter):
    """The columns that change are seen at a row; those of keys and predicates the catalog tells."""
    await fill(meter.connection, 0)
    changed = set()
    for case in ("settle", "settle dead", "renew", "isolate", "cancel"):
        name, arguments = CASES[case].name, CASES[case].arguments
        transaction = meter.connection.transaction()
        await transaction.start()
        before = await row(meter.connection)
        await meter.connection.fetch(query(name).text, *arguments)
        after = await row(meter.connection)
        await transaction.rollback()
        now = {column for column in after if after[column] != before[column]}
        assert now, f"{name} changes nothing"
        changed |= now
    indexed = {
        column["attname"]
        for column in await meter.connection.fetch(
            """
            select a.attname
            from pg_index i
            join pg_attribute a on a.attrelid = i.indrelid
            left join pg_depend d on d.objid = i.indexrelid and d.refobjid = i.indrelid
                                 and d.refobjsubid = a.attnum
            where i.indrelid = 'reliq.jobs'::regclass and a.attnum > 0
              and (a.attnum = any (i.indkey) or d.refobjsubid is not null)
            """
        )
    }

    assert changed >= {"state", "finished_at", "lost_leases", "lease_until", "dead_reason", "alone"}
    assert changed >= {"cancel_requested_at", "cancel_requested_by", "cancel_reason"}
    assert indexed >= {"id", "ready", "run_at", "reap_at"}
    assert changed & indexed == set()


async def row(connection: asyncpg.Connection) -> dict[str, object]:
    found = await connection.fetchval("select to_jsonb(j) from reliq.jobs j where id = $1", HELD[0])
    return dict(json.loads(found))
