"""Fan-out and fan-in on a real Postgres: children once, one final job, progress."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import timedelta

import anyio
import asyncpg
import pytest

from reliq.domain.family import Family, OnFailure
from reliq.domain.job import JobId, Kind, NewJob
from reliq.domain.keep import Keep, Keeps
from reliq.domain.lanes import Lanes
from reliq.domain.outcome import Succeed
from reliq.errors import LeaseLost, StoreUnavailable
from reliq.postgres.desk import Desk
from reliq.postgres.enqueue import enqueue
from reliq.postgres.queries import query
from reliq.postgres.queue import PostgresQueue
from tests.fixtures.postgres import Clock
from tests.fixtures.store import LEASE, buried, failed

pytestmark = pytest.mark.anyio

THEN = NewJob(kind="mail", payload={"to": "ann"}, run_in=timedelta(hours=1), queue="q", priority=2)


def family(children: int, on_failure: OnFailure = "hold") -> Family:
    made = [NewJob(kind="job", payload={"n": n}) for n in range(children)]
    return Family(children=made, then=THEN, on_failure=on_failure)


async def fan_out(queue: PostgresQueue, wish: Family) -> JobId:
    """Let a job fan out and succeed; answer its id."""
    await enqueue(queue.pool, "parent")
    known = {Kind("parent"): 8}
    taker = replace(queue, attempts_max=known, _lanes=Lanes(), _lanes_found_at=float("-inf"))
    [claim] = await taker.claim_jobs(1)
    async with queue.transaction(claim) as tx:
        assert await queue.fan_out(tx, claim.job_id, wish) == len(wish.children)
    return claim.job_id


async def finals(pool: asyncpg.Pool) -> Sequence[asyncpg.Record]:
    return await pool.fetch("select * from reliq.jobs where kind = 'mail' order by id")


async def progress(pool: asyncpg.Pool, parent: JobId) -> dict:
    row = await pool.fetchrow("select * from reliq.families where parent_id = $1", parent)
    assert row is not None
    return dict(row)


async def test_children_are_made_chunk_by_chunk_with_the_parents_success(pool, queue):
    parent = await fan_out(queue, family(2_345))

    rows = await pool.fetch("select * from reliq.jobs where parent_id = $1 order by id", parent)
    assert [json.loads(row["payload"])["n"] for row in rows] == list(range(2_345))
    assert {(row["kind"], row["state"], row["attempts_max"]) for row in rows} == {
        ("job", "queued", 8)
    }
    assert len({row["key"] for row in rows}) == 2_345
    assert await pool.fetchval("select state from reliq.jobs where id = $1", parent) == "succeeded"


async def test_a_handler_that_fails_in_its_transaction_has_made_nothing(pool, queue):
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)

    with pytest.raises(ZeroDivisionError):
        async with queue.transaction(claim) as tx:
            await queue.fan_out(tx, claim.job_id, family(3))
            raise ZeroDivisionError

    assert await pool.fetchval("select count(*) from reliq.jobs") == 1
    assert await pool.fetchval("select count(*) from reliq.parents") == 0


async def test_a_worker_that_lost_the_lease_has_made_nothing(pool, queue, open_queue, clock: Clock):
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)
    await clock.forward(LEASE.total_seconds() + 1)
    await queue.reap_jobs()

    with pytest.raises(LeaseLost):
        async with queue.transaction(claim) as tx:
            await queue.fan_out(tx, claim.job_id, family(3))
    assert await pool.fetchval("select count(*) from reliq.jobs") == 1

    [again] = await open_queue("w2").claim_jobs(1)
    async with queue.transaction(again) as tx:
        assert await queue.fan_out(tx, again.job_id, family(3)) == 3
    assert await pool.fetchval("select count(*) from reliq.jobs") == 4


async def test_a_second_call_for_the_same_job_makes_nothing(pool, queue):
    parent = await fan_out(queue, family(3))

    async with pool.acquire() as connection:
        assert await queue.fan_out(connection, parent, family(3)) == 0

    assert await pool.fetchval("select count(*) from reliq.jobs where parent_id is not null") == 3


async def test_the_final_job_is_made_when_the_last_child_has_ended(pool, queue):
    parent = await fan_out(queue, family(3))
    children = await queue.claim_jobs(3)
    assert {child.parent_id for child in children} == {parent}

    await queue.settle_jobs([(children[0], Succeed()), (children[1], Succeed())])
    assert not await finals(pool)
    await queue.settle_jobs([(children[2], failed())])
    assert not await finals(pool)
    [last] = await queue.claim_jobs(1)
    await queue.settle_jobs([(last, Succeed())])

    [final] = await finals(pool)
    assert json.loads(final["payload"]) == {
        "to": "ann",
        "family": {
            "parent_id": parent, "children": 3, "succeeded": 3, "dead": 0, "cancelled": 0,
        },
    }  # fmt: skip
    assert (final["key"], final["queue"], final["priority"]) == (f"family:{parent}", "q", 2)
    assert final["run_at"] - final["created_at"] == THEN.run_in


async def test_a_child_that_ends_in_its_own_transaction_is_the_last_too(pool, queue):
    await fan_out(queue, family(1))
    [child] = await queue.claim_jobs(1)

    async with queue.transaction(child):
        assert not await finals(pool)

    assert len(await finals(pool)) == 1


async def test_a_family_without_children_ends_at_once(pool, queue):
    parent = await fan_out(queue, family(0))

    [final] = await finals(pool)
    assert json.loads(final["payload"])["family"]["children"] == 0
    assert (await progress(pool, parent))["final_job_id"] == final["id"]


async def test_two_last_children_settled_at_once_make_one_final_job(pool, open_queue):
    workers = [open_queue(f"w{n}") for n in range(2)]
    for _ in range(20):
        await fan_out(workers[0], family(2))
        claims = [(await worker.claim_jobs(1))[0] for worker in workers]

        async with anyio.create_task_group() as tasks:
            for worker, claim in zip(workers, claims, strict=True):
                tasks.start_soon(worker.settle_jobs, [(claim, Succeed())])

    assert len(await finals(pool)) == 20


async def test_many_who_ask_at_once_about_many_families_make_one_final_job_each(pool, queue):
    parents = [await fan_out(queue, family(1)) for _ in range(20)]
    await pool.execute("update reliq.jobs set state = 'succeeded', ready = false")

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            asked = parents[n:] + parents[:n]
            tasks.start_soon(pool.fetch, query("end_families").text, asked)

    assert sorted(final["key"] for final in await finals(pool)) == sorted(
        f"family:{parent}" for parent in parents
    )


async def test_the_beat_ends_what_the_workers_that_died_left(pool, queue):
    parents = [await fan_out(queue, family(1)) for _ in range(3)]
    await pool.execute(
        "update reliq.jobs set state = 'succeeded', ready = false where parent_id = any ($1)",
        parents[1:],
    )

    ended = await queue.end_open_families()

    assert ended == {
        parent: final["id"] for parent, final in zip(parents[1:], await finals(pool), strict=True)
    }
    assert await queue.end_open_families() == {}


async def test_a_settle_counts_although_the_question_after_it_fails(pool, queue, open_queue):
    class Away(PostgresQueue):
        async def _fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
            if name == "end_families":
                raise StoreUnavailable("it went away")
            return await PostgresQueue._fetch(self, name, *arguments)

    one, other = [await fan_out(queue, family(1)) for _ in range(2)]
    away = Away(**{each.name: getattr(queue, each.name) for each in fields(queue) if each.init})
    claims = await away.claim_jobs(2)

    assert not (await away.settle_jobs([(claims[0], Succeed())])).lost
    async with away.transaction(claims[1]):
        pass

    assert not await finals(pool)
    assert set(await queue.end_open_families()) == {one, other}


async def test_a_dead_child_holds_its_family_until_it_was_made_anew_and_has_succeeded(pool, queue):
    parent = await fan_out(queue, family(2))
    one, other = await queue.claim_jobs(2)
    await queue.settle_jobs([(one, Succeed())])
    await queue.settle_jobs([(other, buried())])
    assert await queue.end_open_families() == {}
    seen = await progress(pool, parent)
    assert (seen["done"], seen["succeeded"], seen["dead"]) == (2, 1, 1)
    assert seen["finished_at"] is None

    await Desk(pool).requeue_job(other.job_id, by="ann", reason="mended", even_ignored=False)
    assert await queue.end_open_families() == {}
    seen = await progress(pool, parent)
    assert (seen["done"], seen["queued"], seen["dead"]) == (1, 1, 0)
    await pool.execute("delete from reliq.jobs where kind = 'alert'")
    [anew] = await queue.claim_jobs(1)
    assert anew.parent_id == parent
    await queue.settle_jobs([(anew, Succeed())])

    [final] = await finals(pool)
    assert json.loads(final["payload"])["family"] == {
        "parent_id": parent, "children": 2, "succeeded": 2, "dead": 0, "cancelled": 0,
    }  # fmt: skip


async def test_a_family_that_goes_on_without_its_dead_does_not_end_a_second_time(pool, open_queue):
    queue = open_queue(kinds=("job", "mail"))
    parent = await fan_out(queue, family(3, "continue"))
    one, other = await queue.claim_jobs(2)
    await queue.settle_jobs([(one, Succeed()), (other, buried())])
    await pool.execute(
        "update reliq.jobs set state = 'cancelled', ready = false where state = 'queued'"
    )
    assert list(await queue.end_open_families()) == [parent]
    [final] = await finals(pool)
    assert json.loads(final["payload"])["family"] == {
        "parent_id": parent, "children": 3, "succeeded": 1, "dead": 1, "cancelled": 1,
    }  # fmt: skip

    await Desk(pool).requeue_job(other.job_id, by="ann", reason="mended", even_ignored=False)
    [anew] = await queue.claim_jobs(1)
    await queue.settle_jobs([(anew, Succeed())])

    assert await finals(pool) == [final]


async def test_of_many_children_few_are_looked_at(pool, queue):
    parent = await fan_out(queue, family(20_000))
    first = await pool.fetchval("select min(id) from reliq.jobs where parent_id = $1", parent)

    pages = []
    for n in range(1, 20):
        await pool.execute(
            "update reliq.jobs set state = 'succeeded', ready = false"
            " where id >= $1 and id < $2 and state = 'queued'", first, first + n * 1_000,
        )  # fmt: skip
        assert await pool.fetch(query("end_families").text, [parent]) == []
        mark = await pool.fetchval("select walked_to from reliq.parents")
        assert mark == first + n * 1_000
        pages.append(await looked_at(pool, parent))

    assert max(pages) < 40, pages
    assert await pool.fetchval("select done from reliq.families") == 19_000


async def test_a_child_below_the_mark_still_holds_its_family(pool, open_queue):
    queue = open_queue(kinds=("job", "mail"))
    parent = await fan_out(queue, family(2, "continue"))
    one, _ = await queue.claim_jobs(2)
    await pool.execute("update reliq.parents set walked_to = 1000000")  # as by one committed before

    await queue.settle_jobs([(one, Succeed())])
    assert await queue.end_open_families() == {}
    await pool.execute("update reliq.jobs set state = 'succeeded' where state = 'running'")

    assert list(await queue.end_open_families()) == [parent]


async def looked_at(pool: asyncpg.Pool, parent: JobId) -> int:
    async with pool.acquire() as connection:
        text = query("end_families").text.replace("$1", f"'{{{parent}}}'")
        [row] = await connection.fetch(f"explain (analyze, buffers, format json) {text}")
    plan = json.loads(row[0])[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


async def test_finished_families_are_forgotten_with_their_jobs(pool, queue, clock: Clock):
    await fan_out(queue, family(0))
    waiting = await fan_out(queue, family(1))
    await clock.forward(31 * 86_400)

    age = timedelta(days=30)
    usual = Keep(succeeded=age, cancelled=age, dead=age, ignored=age)
    await Desk(pool).prune(Keeps(usual=usual, bodies=age, effects=age, kinds={}))

    assert [row["job_id"] for row in await pool.fetch("select job_id from reliq.parents")] == [
        waiting
    ]
