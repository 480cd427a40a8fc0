"""The queue's numbers as views: what they say, and that they ask for little in a full database."""

import json
from datetime import timedelta

import asyncpg
import pytest

from reliq.domain.outcome import Succeed, fingerprint
from reliq.postgres.enqueue import enqueue
from reliq.postgres.queries import Query, query
from tests.fixtures.filled import BURIED, HELD
from tests.fixtures.plans import connected, run
from tests.fixtures.store import LEASE, buried, failed

pytestmark = pytest.mark.anyio

PAGES = {"queue_depth": 559, "throughput": 80, "lost_leases": 46, "dead_letters": 41}
"""The views, and the pages that each asked for among two million jobs; a page is some 2 µs."""


async def test_every_view_and_every_column_says_what_it_is(pool: asyncpg.Pool):
    rows = await pool.fetch(
        """
        select c.relname as view, col_description(c.oid, a.attnum) as said,
               obj_description(c.oid) as about
        from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
        where c.relkind = 'v' and c.relnamespace = 'reliq'::regnamespace
        """
    )

    assert {row["view"] for row in rows} >= PAGES.keys()
    assert [row["view"] for row in rows if not (row["said"] and row["about"])] == []


@pytest.mark.parametrize("planner", ["on", "off"])
async def test_a_view_asks_for_few_pages_among_two_million_jobs(full_copy: str, planner: str):
    """As an operator's own connection plans it, and as the product's does."""
    async with connected(full_copy) as connection:
        await connection.fetch(query("reap_jobs").text, 50_000, LEASE, True, LEASE)  # noqa: FBT003
        await connection.fetch(query("settle_succeeded").text, list(HELD), [1] * len(HELD))
        await connection.execute("analyze reliq.attempts")
        await connection.execute(f"set enable_seqscan = {planner}")
        plans = {view: await run(connection, "unprepared", every(view), ()) for view in PAGES}

    for view, plan in plans.items():
        assert plan.rows > 0, view
        assert plan.pages <= PAGES[view] * 3 // 2 + 5, view
        # Of attempts there are few: to read them all may be the best plan.
        assert plan.scanned <= ({"attempts"} if planner == "on" else set()), view


WATCH = "select reliq.watch('30 days', '10 minutes', '{heartbeat}', '{heartbeat@now}')"
WATCH_PAGES = 204
"""As above; in all some 20 ms."""


@pytest.mark.parametrize("planner", ["on", "off"])
async def test_the_watch_asks_for_few_pages_among_two_million_jobs(full_copy: str, planner: str):
    """At its worst: 5,000 dead letters in its window, and thousands of late jobs in two queues."""
    async with connected(full_copy) as connection:
        await connection.execute(BURIED, 5_000)
        await connection.execute("analyze reliq.attempts")
        await connection.execute(f"set enable_seqscan = {planner}")
        look = Query(name="watch", text=WATCH, parameters=(), columns=(), keeps=(), header=())
        plan = await run(connection, "unprepared", look, ())
        seen = json.loads(await connection.fetchval(WATCH))

    assert (seen["died"], seen["died_at_least"]) == (5_000, True)
    assert {row["queue"]: row["jobs"] for row in seen["late"]} == {"default": 1_000, "mail": 200}
    assert plan.pages <= WATCH_PAGES * 3 // 2 + 5
    # All that is remembered of alarms is wanted, and of limits, a row for each queue at most: before
    # Postgres 16 no index gives their order to an aggregate. Pauses are as few.
    assert plan.scanned <= {"alarms", "limits"} | (
        {"attempts", "pauses"} if planner == "on" else set()
    )


def every(view: str) -> Query:
    text = f"select * from reliq.{view}"
    return Query(name=view, text=text, parameters=(), columns=(), keeps=(), header=())


async def test_the_depth_of_a_queue(pool: asyncpg.Pool, queue, clock):
    for _ in range(3):
        await enqueue(pool, "job")
    await enqueue(pool, "mail", run_in=timedelta(hours=1))
    await enqueue(pool, "mail", queue="slow", priority=1)
    back = [claim for claim in await queue.claim_jobs(5) if claim.kind == "job"][:2]
    await queue.settle_jobs([(claim, failed()) for claim in back])
    await clock.forward(90)

    found = {row["queue"]: dict(row) for row in await pool.fetch("select * from reliq.queue_depth")}

    default, slow = found["default"], found["slow"]
    assert 89 < default.pop("oldest_due").total_seconds() < 120
    assert default == {
        "queue": "default", "queued": 3, "due": 2, "retrying": 2, "running": 1, "at_least": False,
    }  # fmt: skip
    assert (slow["queued"], slow["running"], slow["oldest_due"]) == (0, 1, None)


async def test_a_count_that_stops_at_its_bound_says_so(pool: asyncpg.Pool):
    await pool.execute(
        "insert into reliq.jobs (kind, key) select 'job', 'k' from generate_series(1, 10001)"
    )

    [row] = await pool.fetch("select * from reliq.queue_depth")

    assert (row["queued"], row["due"], row["at_least"]) == (10_000, 10_000, True)


async def test_throughput_counts_what_ended_of_late(pool: asyncpg.Pool, queue, clock):
    for _ in range(4):
        await enqueue(pool, "job")
    claims = await queue.claim_jobs(4)
    await clock.forward(10)
    await queue.settle_jobs([(claim, Succeed()) for claim in claims[:3]])
    await queue.settle_jobs([(claims[3], buried())])

    [row] = await pool.fetch("select * from reliq.throughput")

    assert (row["kind"], row["succeeded"], row["died"]) == ("job", 3, 1)
    assert row["span"] == timedelta(minutes=5)
    assert float(row["per_second"]) == 0.01
    assert 10 <= row["ran"].total_seconds() < 20
    await clock.forward(400)
    assert await pool.fetch("select * from reliq.throughput") == []


async def test_lost_leases_and_dead_letters_by_kind_and_error(
    pool: asyncpg.Pool, open_queue, clock
):
    queue = open_queue("w1", kinds=("job",))
    for _ in range(4):
        await enqueue(pool, "job")
    one, two, three, _ = await queue.claim_jobs(4)
    errors = ["no account 17", "no account 23", "refused"]
    for claim, error in zip((one, two, three), errors, strict=True):
        await queue.settle_jobs([(claim, buried(error))])
    await clock.forward(60)
    await queue.reap_jobs()
    await pool.execute("update reliq.attempts set ignored_at = reliq.now() where error = 'refused'")

    [lost] = await pool.fetch("select * from reliq.lost_leases")
    dead = {row["fingerprint"]: row for row in await pool.fetch("select * from reliq.dead_letters")}

    assert (lost["kind"], lost["last_hour"], lost["last_day"], lost["died"]) == ("job", 1, 1, 0)
    assert lost["workers"] == 1
    account, refused = dead[fingerprint("no account 5")], dead[fingerprint("refused")]
    assert (account["open"], account["ignored"], account["error"]) == (2, 0, "no account 23")
    assert (refused["open"], refused["ignored"]) == (0, 1)
