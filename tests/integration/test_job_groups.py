"""Jobs of one group run one at a time, or a few, in order; whatever happens, the group goes on."""

from datetime import timedelta

import anyio
import asyncpg
import pytest

from reliq.domain.job import Claim, JobId, NewJob
from reliq.domain.outcome import Settlement, Succeed
from reliq.postgres.desk import Desk
from reliq.postgres.enqueue import enqueue, enqueue_many
from reliq.postgres.queue import PostgresQueue
from tests.fixtures.postgres import Clock
from tests.fixtures.store import LEASE, OpenQueue, buried, failed

pytestmark = pytest.mark.anyio


@pytest.fixture
def queue(open_queue: OpenQueue) -> PostgresQueue:
    return open_queue(kinds=("job",), alerts=False)


async def put(pool: asyncpg.Pool, *groups: str | None, running: int = 1) -> list[JobId]:
    return [
        (await enqueue(pool, "job", group_key=group, group_running=running)).job_id
        for group in groups
    ]


async def claimed(queue: PostgresQueue, places: int = 10) -> list[JobId]:
    return [claim.job_id for claim in await queue.claim_jobs(places)]


async def end(queue: PostgresQueue, claim: Claim, how: Settlement | None = None) -> None:
    settled = await queue.settle_jobs([(claim, how or Succeed())])
    assert not settled.lost


async def test_the_first_of_each_group_can_be_claimed_and_nothing_behind_it(pool, queue):
    a1, _a2, b1, free, _a3 = await put(pool, "a", "a", "b", None, "a")

    assert await claimed(queue) == [a1, b1, free]


@pytest.mark.parametrize("how", [Succeed(), buried()], ids=["succeeded", "dead"])
async def test_the_next_follows_when_the_head_has_ended(pool, queue, how):
    _first, second, _third = await put(pool, "a", "a", "a")
    [head] = await queue.claim_jobs(10)

    await end(queue, head, how)

    assert await claimed(queue) == [second]


async def test_a_head_that_waits_for_its_retry_is_waited_for(pool, queue, clock: Clock):
    first, _second = await put(pool, "a", "a")
    [head] = await queue.claim_jobs(10)

    await end(queue, head, failed(after=60))

    assert await claimed(queue) == []
    await clock.forward(61)
    assert await claimed(queue) == [first]


async def test_a_head_that_loses_its_lease_comes_back_before_the_next(pool, queue, clock: Clock):
    first, _second = await put(pool, "a", "a")
    await queue.claim_jobs(10)
    await clock.forward(LEASE.total_seconds() + 1)

    await queue.reap_jobs()

    assert await claimed(queue) == [first]


async def test_the_reaper_lets_a_group_go_on_whose_head_it_buries(pool, open_queue, clock: Clock):
    queue = open_queue(attempts_max={"job": 1})
    _first, second = await put(pool, "a", "a")
    await queue.claim_jobs(10)
    await clock.forward(LEASE.total_seconds() + 1)

    [reaped] = await queue.reap_jobs()

    assert reaped.dead
    assert await claimed(queue) == [second]


async def test_a_success_in_the_handlers_transaction_lets_the_next_follow(pool, open_queue):
    rung = []
    queue = open_queue(ring=lambda: rung.append(1))
    _first, second = await put(pool, "a", "a")
    [head] = await queue.claim_jobs(10)

    async with queue.transaction(head):
        pass

    assert rung == [1]
    assert await claimed(queue) == [second]


async def test_nobody_is_rung_for_when_nothing_waits(pool, open_queue):
    rung = []
    queue = open_queue(ring=lambda: rung.append(1))
    await put(pool, "a")
    [head] = await queue.claim_jobs(10)

    await end(queue, head)

    assert rung == []


async def test_a_promotion_that_was_missed_is_made_up_for(pool, queue):
    first, second = await put(pool, "a", "a")
    await claimed(queue)
    await pool.execute("update reliq.jobs set state = 'succeeded' where id = $1", first)
    assert await claimed(queue) == []

    await queue.follow_up()

    assert await claimed(queue) == [second]


async def test_an_enqueue_sees_a_missed_promotion_too(pool, queue):
    first, second = await put(pool, "a", "a")
    await claimed(queue)
    await pool.execute("update reliq.jobs set state = 'succeeded' where id = $1", first)

    await put(pool, "a")

    assert await claimed(queue) == [second]


async def test_a_follow_up_of_a_group_that_goes_on_changes_nothing(pool, queue):
    _first, second, _third = await put(pool, "a", "a", "a")
    [head] = await queue.claim_jobs(10)
    await queue.follow_up()
    assert await claimed(queue) == []
    await end(queue, head)

    await queue.follow_up()

    assert await claimed(queue) == [second]


async def test_an_enqueue_that_commits_while_the_head_ends_is_not_forgotten(pool, queue):
    """The settle cannot see the job, which cannot see the settle: the lock must order them."""
    [_first] = await put(pool, "a")
    [head] = await queue.claim_jobs(10)
    async with (
        pool.acquire() as connection,
        anyio.create_task_group() as tasks,
        connection.transaction(),
    ):
        second = await enqueue(connection, "job", group_key="a")
        tasks.start_soon(end, queue, head)
        await waits_for_a_lock(pool)

    assert await claimed(queue) == [second.job_id]


async def waits_for_a_lock(pool: asyncpg.Pool) -> None:
    with anyio.fail_after(10):
        while not await pool.fetchval("select count(*) from pg_locks where not granted"):
            await anyio.sleep(0.01)


async def test_a_hundred_enqueues_at_once_leave_one_head(pool, queue):
    async def ask() -> None:
        await enqueue(pool, "job", group_key="a")

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(ask)

    assert len(await claimed(queue, 100)) == 1


async def test_settles_and_enqueues_at_random_keep_the_order_and_end(pool, open_queue):
    """Three workers, two groups, failures: the order of ids is the order of successes."""
    done: dict[str, list[int]] = {"a": [], "b": []}
    ids = {group: await put(pool, *[group] * 30) for group in done}

    async def work(n: int) -> None:
        queue = open_queue(f"w{n}")
        while sum(map(len, done.values())) < 60:
            for claim in await queue.claim_jobs(1):
                if (claim.job_id + claim.attempt) % 3 == 0:
                    await end(queue, claim, failed())
                else:
                    await end(queue, claim)
                    done[claim.group_key].append(claim.job_id)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for n in range(3):
                tasks.start_soon(work, n)

    assert done == ids


async def test_many_at_once_keep_the_callers_order_whatever_their_keys(pool, queue):
    async with pool.acquire() as connection:
        answers = await enqueue_many(
            connection,
            [
                NewJob(kind="job", group_key="g", key="z"),
                NewJob(kind="job", key="x"),
                NewJob(kind="job", group_key="g", key="a"),
                NewJob(kind="job"),
                NewJob(kind="job", group_key="f"),
            ],
        )
    ids = [answer.job_id for answer in answers]
    assert await pool.fetchval("select count(*) from reliq.jobs where blocked") == 1

    assert sorted(await claimed(queue)) == sorted([ids[0], ids[1], ids[3], ids[4]])


async def test_a_duplicate_takes_no_place_in_its_group(pool, queue):
    [_first] = await put(pool, "a")
    answer = await enqueue(pool, "job", key="k")

    again = await enqueue(pool, "job", key="k", group_key="a")

    assert again.job_id == answer.job_id
    assert not await pool.fetchval("select count(*) from reliq.jobs where blocked")


async def test_a_dead_letter_made_anew_comes_last(pool, queue):
    first, second = await put(pool, "a", "a")
    [head] = await queue.claim_jobs(10)
    await end(queue, head, buried())

    anew, _ = await Desk(pool).requeue_job(first, by="me", reason="mended", even_ignored=False)

    [now_second] = await queue.claim_jobs(10)
    assert now_second.job_id == second
    await end(queue, now_second)
    assert await claimed(queue) == [anew]


async def test_a_dead_letter_made_anew_in_a_group_at_rest_can_be_claimed_at_once(pool, queue):
    [first] = await put(pool, "a")
    [head] = await queue.claim_jobs(10)
    await end(queue, head, buried())

    anew, _ = await Desk(pool).requeue_job(first, by="me", reason="mended", even_ignored=False)

    assert await claimed(queue) == [anew]


async def test_a_rolled_back_head_leaves_the_group_free(pool, queue):
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await enqueue(connection, "job", group_key="a")
        await transaction.rollback()

    assert await claimed(queue) == []
    [second] = await put(pool, "a")
    assert await claimed(queue) == [second]


async def test_the_next_starts_no_earlier_than_its_own_time(pool, queue, clock: Clock):
    [_first] = await put(pool, "a")
    second = await enqueue(pool, "job", group_key="a", run_in=timedelta(seconds=60))
    [head] = await queue.claim_jobs(10)
    await end(queue, head)
    assert await claimed(queue) == []

    await clock.forward(61)

    assert await claimed(queue) == [second.job_id]


@pytest.mark.parametrize("group", ["", "g" * 513, "a\0b"])
async def test_a_group_that_makes_no_sense_is_refused_in_words(pool, group):
    with pytest.raises(ValueError, match="the group_key of a job is 1 to 512 bytes"):
        await enqueue(pool, "job", group_key=group)


async def test_the_sql_function_refuses_a_group_in_words(pool):
    with pytest.raises(asyncpg.InvalidParameterValueError, match="has 1 to 512 bytes, not 513"):
        await pool.fetch("select reliq.enqueue('job', group_key => repeat('g', 513))")


async def test_a_head_that_is_cancelled_lets_the_next_follow(pool, queue):
    first, second, third = await put(pool, "a", "a", "a")

    await pool.fetchval("select reliq.cancel($1, 'me')", first)

    [head] = await queue.claim_jobs(10)
    assert head.job_id == second
    await pool.fetchval("select reliq.cancel($1, 'me')", second)
    await end(queue, head, failed(after=60))
    assert await claimed(queue) == [third]


async def test_one_that_waits_behind_the_head_can_be_cancelled(pool, queue):
    _first, second, third = await put(pool, "a", "a", "a")
    [head] = await queue.claim_jobs(10)

    assert await pool.fetchval("select reliq.cancel($1, 'me')", second) == "cancelled"

    await end(queue, head)
    assert await claimed(queue) == [third]


async def test_groups_are_forgotten_when_their_jobs_are_gone_and_no_sooner(pool, queue):
    [gone] = await put(pool, "gone")
    await put(pool, "live", "live")
    [head] = [claim for claim in await queue.claim_jobs(10) if claim.job_id == gone]
    await end(queue, head)
    assert await pool.fetchval("select reliq.prune_groups(100)") == 0
    await pool.execute("delete from reliq.jobs where id = $1", gone)

    assert await pool.fetchval("select reliq.prune_groups(100)") == 1

    assert await pool.fetchval("select array_agg(key) from reliq.job_groups") == ["live"]
    [back] = await put(pool, "gone")
    assert back in await claimed(queue)


async def test_a_group_that_somebody_is_adding_to_is_not_forgotten(pool, queue):
    [first] = await put(pool, "a")
    [head] = await queue.claim_jobs(1)
    await end(queue, head)
    await pool.execute("delete from reliq.jobs where id = $1", first)
    async with pool.acquire() as connection, connection.transaction():
        await enqueue(connection, "job", group_key="a")

        assert await pool.fetchval("select reliq.prune_groups(100)") == 0


# Several at one time ----------------------------------------------------------------------------


async def test_as_many_of_a_group_run_as_it_may_and_the_next_follows_whichever_ends(pool, queue):
    first, second, third, fourth, fifth = await put(pool, *"aaaaa", running=3)
    claims = await queue.claim_jobs(10)
    assert [claim.job_id for claim in claims] == [first, second, third]

    await end(queue, claims[1])

    assert await claimed(queue) == [fourth]
    await end(queue, claims[0], buried())
    assert await claimed(queue) == [fifth]


async def test_two_that_end_at_once_are_followed_by_two(pool, queue):
    *_, third, fourth, _fifth = await put(pool, *"aaaaa", running=2)
    claims = await queue.claim_jobs(10)

    await queue.settle_jobs([(claim, Succeed()) for claim in claims])

    assert await claimed(queue) == [third, fourth]


async def test_one_that_waits_for_its_retry_holds_its_place(pool, queue):
    first, _second, third = await put(pool, *"aaa", running=2)
    claims = await queue.claim_jobs(10)

    await end(queue, claims[0], failed(after=60))

    assert await claimed(queue) == []
    await pool.fetchval("select reliq.cancel($1, 'me')", first)
    assert await claimed(queue) == [third]


async def test_those_that_lose_their_leases_come_back_before_the_next(pool, queue, clock: Clock):
    first, second, _third = await put(pool, *"aaa", running=2)
    await queue.claim_jobs(10)
    await clock.forward(LEASE.total_seconds() + 1)

    await queue.reap_jobs()

    assert await claimed(queue) == [first, second]


async def test_the_last_enqueue_says_how_many(pool, queue):
    one, two, three = await put(pool, *"aaa", running=1)
    assert await claimed(queue) == [one]

    [four] = await put(pool, "a", running=4)

    assert await claimed(queue) == [two, three, four]


async def test_who_holds_a_place_keeps_it_when_the_group_gets_fewer(pool, queue):
    one, two, three = await put(pool, *"aaa", running=2)
    [four] = await put(pool, "a", running=1)
    claims = await queue.claim_jobs(10)
    assert [claim.job_id for claim in claims] == [one, two]

    await end(queue, claims[0])
    assert await claimed(queue) == []
    await end(queue, claims[1])

    [now_third] = await queue.claim_jobs(10)
    assert now_third.job_id == three
    await end(queue, now_third)
    assert await claimed(queue) == [four]


async def test_a_duplicate_does_not_say_how_many(pool, queue):
    await put(pool, *"aa", running=1)
    await enqueue(pool, "job", key="k")

    await enqueue(pool, "job", key="k", group_key="a", group_running=5)

    assert await pool.fetchval("select running from reliq.job_groups") == 1
    assert len(await claimed(queue)) == 2  # the head, and the one with a key


async def test_promotions_that_were_missed_are_all_made_up_for(pool, queue):
    first, _second, third, *more = await put(pool, *"aaaaaa", running=3)
    await claimed(queue)
    await pool.execute(
        "update reliq.jobs set state = 'succeeded' where id = any ($1)", [first, third]
    )
    assert await claimed(queue) == []

    await queue.follow_up()

    assert await claimed(queue) == more[:2]
    await queue.follow_up()
    assert await claimed(queue) == []


async def test_a_hundred_enqueues_at_once_leave_as_many_heads_as_may_run(pool, queue):
    async def ask() -> None:
        await enqueue(pool, "job", group_key="a", group_running=7)

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(ask)

    assert len(await claimed(queue, 100)) == 7


async def test_settles_at_random_never_leave_more_than_may_run_and_keep_the_order(pool, open_queue):
    """Three workers, failures: whoever is claimed is among the first three that have not ended."""
    left = await put(pool, *"a" * 60, running=3)
    held: set[JobId] = set()

    async def work(n: int) -> None:
        queue = open_queue(f"w{n}")
        while left:
            for claim in await queue.claim_jobs(2):
                held.add(claim.job_id)
                assert len(held) <= 3
                assert claim.job_id in left[:3]
                if (claim.job_id + claim.attempt) % 3 == 0:
                    await end(queue, claim, failed())
                else:
                    held.discard(claim.job_id)
                    left.remove(claim.job_id)
                    await end(queue, claim)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for n in range(3):
                tasks.start_soon(work, n)


async def test_a_group_is_not_forgotten_while_any_of_its_heads_is_there(pool, queue):
    first, second = await put(pool, *"aa", running=2)
    for claim in await queue.claim_jobs(2):
        await end(queue, claim)
    await pool.execute("delete from reliq.jobs where id = $1", second)
    assert await pool.fetchval("select reliq.prune_groups(100)") == 0

    await pool.execute("delete from reliq.jobs where id = $1", first)

    assert await pool.fetchval("select reliq.prune_groups(100)") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("group_key => 'a', group_running => 0", "not 0"),
        ("group_key => 'a', group_running => 1001", "not 1001"),
        ("group_key => 'a', group_running => null", "not <NULL>"),
        ("group_running => 2", "not 2"),
    ],
)
async def test_the_sql_function_refuses_in_words_how_many(pool, arguments, said):
    text = f"how many of a group_key may run at one time, 1 to 1000, {said}"
    with pytest.raises(asyncpg.InvalidParameterValueError, match=text):
        await pool.fetch(f"select reliq.enqueue('job', {arguments})")
