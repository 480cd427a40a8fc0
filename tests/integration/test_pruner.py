"""Pruning: what goes when, what stays, and that nobody waits for it."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from reliq.domain.keep import Keep, Keeps
from reliq.postgres import pruner as module
from reliq.postgres.enqueue import enqueue
from reliq.postgres.pruner import Pruner

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
KEEPS = Keeps(
    usual=Keep(succeeded=10 * DAY, cancelled=20 * DAY, dead=40 * DAY, ignored=30 * DAY),
    bodies=10 * DAY,
    effects=400 * DAY,
    kinds={"report": Keep(succeeded=100 * DAY, dead=5 * DAY)},
)
ENDED = """
with job as (
  insert into reliq.jobs (kind, key, state, ready, created_at, finished_at, requeued_from)
  values ($1, 'k', $2, false, reliq.now() - $3::interval, reliq.now() - $3::interval, $4)
  returning id, state, kind
),
death as (
  insert into reliq.attempts (job_id, fence, attempt, kind, ended, buried)
  select id, 1, 1, kind, 'failed', true from job where state = 'dead'
)
select id from job
"""
IGNORED = """
update reliq.attempts set ignored_at = reliq.now(), ignored_by = 'ann', ignore_reason = 'known'
where job_id = $1
"""


async def ended(pool, kind: str, state: str, days: int, requeued_from: int | None = None) -> int:
    made: int = await pool.fetchval(ENDED, kind, state, DAY * days, requeued_from)
    return made


async def left(pool) -> set[int]:
    return {row["id"] for row in await pool.fetch("select id from reliq.jobs")}


async def test_each_state_and_kind_is_kept_for_a_time_of_its_own(pool: asyncpg.Pool):
    kept, gone = set(), set()
    for kind, state, keep in (
        ("mail", "succeeded", 10), ("mail", "cancelled", 20), ("mail", "dead", 40),
        ("report", "succeeded", 100), ("report", "cancelled", 20), ("report", "dead", 5),
    ):  # fmt: skip
        kept.add(await ended(pool, kind, state, keep - 1))
        gone.add(await ended(pool, kind, state, keep + 1))
    for days, to in ((29, kept), (31, gone)):
        to.add(letter := await ended(pool, "mail", "dead", days))
        await pool.execute(IGNORED, letter)

    pruned = await Pruner(pool, KEEPS).prune()

    assert await left(pool) == kept
    assert pruned == {
        "jobs": len(gone),
        "bodies": 0,
        "keys": 0,
        "effects": 0,
        "groups": 0,
        "families": 0,
        "reports": 0,
    }
    assert await pool.fetchval("select count(*) from reliq.attempts") == 3


async def test_what_has_not_ended_is_never_pruned_however_old_it_is(pool, queue):
    for _ in range(2):
        await enqueue(pool, "job")
    await queue.claim_jobs(1)
    await pool.execute("update reliq.jobs set created_at = '2000-01-01', claimed_at = '2000-01-01'")

    assert (await Pruner(pool, KEEPS).prune())["jobs"] == 0


async def test_a_job_made_of_a_dead_letter_stays_as_long_as_that(pool: asyncpg.Pool):
    letter = await ended(pool, "mail", "dead", 39)
    made = await ended(pool, "mail", "succeeded", 38, letter)
    orphan = await ended(pool, "mail", "succeeded", 38, 12_345)

    await Pruner(pool, KEEPS).prune()
    assert await left(pool) == {letter, made}
    assert orphan not in await left(pool)

    await pool.execute("update reliq.jobs set finished_at = finished_at - interval '2 days'")
    for _ in range(2):
        await Pruner(pool, KEEPS).prune()
    assert await left(pool) == set()


async def test_a_body_goes_and_headers_and_key_stay(pool: asyncpg.Pool):
    await pool.execute(
        """
        insert into reliq.events (source, dedup_key, headers, body, parse_error, received_at, ignored_at)
        select 's', n::text, '{"a": "b"}', 'x', case when unread then 'no' end,
               reliq.now() - days * interval '1 day', case when ignored then reliq.now() end
        from (values (1, 11, false, false), (2, 9, false, false), (3, 31, true, true),
                     (4, 39, true, false), (5, 41, true, false)) as e (n, days, unread, ignored)
        """
    )
    await pool.execute(
        "insert into reliq.event_keys values ('s', '1', 1, reliq.now() + interval '1 h')"
    )

    assert (await Pruner(pool, KEEPS).prune())["bodies"] == 3
    rows = await pool.fetch("select dedup_key, body is null as gone, headers from reliq.events")
    assert {row["dedup_key"] for row in rows if row["gone"]} == {"1", "3", "5"}
    assert {row["headers"] for row in rows} == {'{"a": "b"}'}
    assert await pool.fetchval("select count(*) from reliq.event_keys") == 1


async def test_the_walk_is_over_where_everything_is_younger(pool: asyncpg.Pool, monkeypatch):
    monkeypatch.setattr(module, "PRUNE_BATCH", 2)
    old = [await ended(pool, "mail", "succeeded", 11) for _ in range(5)]
    young = [await ended(pool, "mail", "succeeded", 1) for _ in range(6)]
    asked = []

    class Noting:
        async def fetch(self, text, *arguments):
            asked.append((text.split()[1], arguments[0]))
            return await pool.fetch(text, *arguments)

    pruned = await Pruner(Noting(), KEEPS).prune()  # type: ignore[arg-type]

    assert pruned["jobs"] == len(old)
    assert await left(pool) == set(young)
    assert [after for name, after in asked if name == "prune_jobs"] == [0, 2, 4, 6]


async def test_pruning_passes_by_a_row_that_somebody_has_locked(pool: asyncpg.Pool):
    locked, other = [await ended(pool, "mail", "succeeded", 11) for _ in range(2)]
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("select from reliq.jobs where id = $1 for update", locked)
        async with asyncio.timeout(5):
            assert (await Pruner(pool, KEEPS).prune())["jobs"] == 1
    assert await left(pool) == {locked}
    assert other != locked


async def test_a_turn_is_taken_once_in_its_time_whoever_asks(pool: asyncpg.Pool, clock):
    pruners = [Pruner(pool, KEEPS) for _ in range(10)]

    assert sum(await asyncio.gather(*(each.take_turn(DAY) for each in pruners))) == 1
    await clock.forward(86_399)
    assert not await pruners[0].take_turn(DAY)
    await clock.forward(2)
    assert sum(await asyncio.gather(*(each.take_turn(DAY) for each in pruners))) == 1
