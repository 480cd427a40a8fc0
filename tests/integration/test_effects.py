"""The ledger of effects: who may do something outside, and what is known of it afterwards."""

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import asyncpg
import pytest

from reliq.app import App
from reliq.domain.job import JobId
from reliq.domain.keep import Keep, Keeps
from reliq.domain.outcome import Succeed
from reliq.domain.retry import RetryPolicy
from reliq.errors import LeaseLost
from reliq.job import Effect, Job
from reliq.ports import Reservation
from reliq.postgres.desk import Desk
from reliq.postgres.enqueue import enqueue
from reliq.postgres.queue import PostgresQueue
from reliq.worker.effects import once
from reliq.worker.hand import Attempt
from tests.fixtures.postgres import Clock
from tests.fixtures.store import OpenQueue
from tests.integration.test_worker_loop import new_worker, run_until_all_succeeded

pytestmark = pytest.mark.anyio

NEW, UNKNOWN, LOST = Reservation("new"), Reservation("unknown"), Reservation("lost")
DONE = Reservation("done", result={"id": 7})
DAY = timedelta(days=1)
WAITING = "select count(distinct pid) from pg_locks where not granted"
SOON = RetryPolicy(base=timedelta(seconds=0.01), cap=timedelta(seconds=0.02))


def taken(holder: JobId) -> Reservation:
    return Reservation("taken", holder=holder)


async def attempt(pool: asyncpg.Pool, queue: PostgresQueue) -> Attempt:
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)
    return Attempt(claim=claim, lease_until_s=0, renewed_at_s=0)


async def take_over(old: Attempt, queue: PostgresQueue, clock: Clock) -> Attempt:
    """End the lease of an attempt, and claim its job again."""
    await clock.forward(31)
    await queue.reap_jobs()
    [claim] = await queue.claim_jobs(1)
    assert claim.job_id == old.claim.job_id
    return Attempt(claim=claim, lease_until_s=0, renewed_at_s=0)


async def rows(pool: asyncpg.Pool) -> list[tuple[Any, ...]]:
    found = await pool.fetch(
        "select key, job_id, fence, done_at is not null, result from reliq.effect_keys order by key"
    )
    return [tuple(row) for row in found]


async def test_a_new_effect_is_done_once_and_its_result_is_found_by_all(pool, queue, clock):
    first, other = await attempt(pool, queue), await attempt(pool, queue)

    assert await queue.reserve_effect(first.claim, "k") == NEW
    assert await queue.finish_effect(first.claim, "k", '{"id": 7}')

    assert await queue.reserve_effect(first.claim, "k") == DONE
    assert await queue.reserve_effect(other.claim, "k") == DONE
    again = await take_over(first, queue, clock)
    assert await queue.reserve_effect(again.claim, "k") == DONE


async def test_an_effect_that_another_job_is_at_is_taken_and_nothing_is_written(pool, queue):
    first, other = await attempt(pool, queue), await attempt(pool, queue)
    await queue.reserve_effect(first.claim, "k")
    before = await rows(pool)

    assert await queue.reserve_effect(other.claim, "k") == taken(first.claim.job_id)
    assert not await queue.finish_effect(other.claim, "k", "1")
    assert await rows(pool) == before


async def test_an_effect_whose_holder_ended_without_a_word_is_unknown(pool, queue):
    first, other = await attempt(pool, queue), await attempt(pool, queue)
    await queue.reserve_effect(first.claim, "k")

    await queue.settle_jobs([(first.claim, Succeed())])

    assert await queue.reserve_effect(other.claim, "k") == UNKNOWN
    assert await queue.finish_effect(other.claim, "k", '{"id": 7}')


async def test_an_effect_whose_holders_job_is_gone_is_unknown(pool, queue):
    first, other = await attempt(pool, queue), await attempt(pool, queue)
    await queue.reserve_effect(first.claim, "k")

    await pool.execute("delete from reliq.jobs where id = $1", first.claim.job_id)

    assert await queue.reserve_effect(other.claim, "k") == UNKNOWN


async def test_an_effect_whose_holders_lease_is_over_is_unknown_before_the_reaper_comes(
    pool, queue, clock: Clock
):
    first = await attempt(pool, queue)
    await queue.reserve_effect(first.claim, "k")
    await clock.forward(31)
    other = await attempt(pool, queue)

    assert await queue.reserve_effect(other.claim, "k") == UNKNOWN
    assert not await queue.finish_effect(first.claim, "k", "1"), "it is the other's now"


async def test_a_takeover_is_told_unknown_and_the_old_attempt_writes_no_more(
    pool, queue, clock: Clock
):
    old = await attempt(pool, queue)
    await queue.reserve_effect(old.claim, "k")
    new = await take_over(old, queue, clock)

    assert not await queue.finish_effect(old.claim, "k", "1")
    assert await queue.reserve_effect(old.claim, "k2") == LOST
    assert await queue.reserve_effect(new.claim, "k") == UNKNOWN
    assert not await queue.finish_effect(old.claim, "k", "1")
    assert await rows(pool) == [("k", new.claim.job_id, new.claim.fence, False, None)]


async def test_an_effect_of_an_earlier_attempt_is_unknown_though_its_job_runs_again(
    pool, queue, clock: Clock
):
    old = await attempt(pool, queue)
    await queue.reserve_effect(old.claim, "k")
    new = await take_over(old, queue, clock)
    other = await attempt(pool, queue)

    assert not await queue.finish_effect(new.claim, "k", "1"), "it has not asked"
    assert await queue.reserve_effect(other.claim, "k") == UNKNOWN


async def test_who_asks_twice_without_a_word_in_between_is_told_unknown(pool, queue):
    one = await attempt(pool, queue)
    await queue.reserve_effect(one.claim, "k")

    assert await queue.reserve_effect(one.claim, "k") == UNKNOWN


async def test_a_job_that_has_ended_ends_no_effect(pool, queue):
    one = await attempt(pool, queue)
    await queue.reserve_effect(one.claim, "k")
    await queue.settle_jobs([(one.claim, Succeed())])

    assert not await queue.finish_effect(one.claim, "k", "1")


async def test_a_lease_that_is_over_reserves_nothing(pool, queue, clock: Clock):
    old = await attempt(pool, queue)
    await clock.forward(31)

    assert await queue.reserve_effect(old.claim, "k") == LOST
    assert await rows(pool) == []


async def test_what_is_done_stays_as_it_was_said_first(pool, queue):
    first = await attempt(pool, queue)
    await queue.reserve_effect(first.claim, "k")
    await queue.finish_effect(first.claim, "k", '{"id": 7}')

    assert await queue.finish_effect(first.claim, "k", '{"id": 8}'), "a reply that was lost"
    assert await queue.reserve_effect(first.claim, "k") == DONE


async def let_go_at_once(pool: asyncpg.Pool, holding: str, asks: list[Any]) -> None:
    """Run all of them while a statement that is then taken back holds them up."""
    async with pool.acquire() as connection, anyio.create_task_group() as tasks:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(holding)
        for ask in asks:
            tasks.start_soon(ask)
        with anyio.fail_after(10):
            while await pool.fetchval(WAITING) < len(asks):
                await anyio.sleep(0.01)
        await transaction.rollback()


@pytest.mark.parametrize(
    ("first", "holding"),
    [
        ("new", "insert into reliq.effect_keys (key, job_id, fence) values ('k', 0, 0)"),
        ("unknown", "select * from reliq.effect_keys for update"),
    ],
)
async def test_twenty_jobs_ask_for_one_effect_at_once_and_all_get_an_answer(
    pool, queue, first, holding
):
    if first == "unknown":
        await queue.reserve_effect((dead := await attempt(pool, queue)).claim, "k")
        await queue.settle_jobs([(dead.claim, Succeed())])
    answers: list[Reservation] = []

    async def ask(one: Attempt) -> None:
        answers.append(await queue.reserve_effect(one.claim, "k"))

    asks = [partial(ask, await attempt(pool, queue)) for _ in range(20)]
    await let_go_at_once(pool, holding, asks)

    assert Counter(found.answer for found in answers) == {first: 1, "taken": 19}


async def test_a_holder_that_came_while_we_waited_is_seen(pool, queue):
    """Whether the holder lives is read after the key was locked, not as the statement began."""
    first, second, third = [await attempt(pool, queue) for _ in range(3)]
    await queue.reserve_effect(first.claim, "k")
    await queue.settle_jobs([(first.claim, Succeed())])
    await pool.execute("update reliq.jobs set fence = 0 where id = $1", second.claim.job_id)
    found: list[Reservation] = []

    async def ask() -> None:
        found.append(await queue.reserve_effect(third.claim, "k"))

    async with pool.acquire() as connection, anyio.create_task_group() as tasks:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "update reliq.jobs set fence = 1 where id = $1", second.claim.job_id
        )
        await connection.execute("update reliq.effect_keys set job_id = $1", second.claim.job_id)
        tasks.start_soon(ask)
        with anyio.fail_after(10):
            while not await pool.fetchval("select count(*) from pg_locks where not granted"):
                await anyio.sleep(0.01)
        await transaction.commit()

    assert found == [taken(second.claim.job_id)]


async def test_a_job_is_not_taken_over_while_its_effect_is_written(pool, queue, clock: Clock):
    first = await attempt(pool, queue)
    async with pool.acquire() as connection, connection.transaction():
        await connection.fetch("select * from reliq.reserve_effect('k', $1, $2)", *first.claim.held)
        await clock.forward(31)
        assert await queue.reap_jobs() == []

    assert len(await queue.reap_jobs()) == 1


async def test_prune_forgets_what_was_done_long_ago_and_nothing_else(pool, queue, clock: Clock):
    first = await attempt(pool, queue)
    for key in ("done", "begun"):
        await queue.reserve_effect(first.claim, key)
    await queue.finish_effect(first.claim, "done", "1")
    usual = Keep(succeeded=DAY, cancelled=DAY, dead=DAY, ignored=DAY)
    keeps = Keeps(usual=usual, bodies=DAY, effects=10 * DAY, kinds={})

    await clock.forward(9 * 86400)
    assert (await Desk(pool).prune(keeps))["effects"] == 0
    await clock.forward(2 * 86400)
    assert (await Desk(pool).prune(keeps))["effects"] == 1
    assert [row[0] for row in await rows(pool)] == ["begun"]


# What a handler sees ----------------------------------------------------------------------------


async def test_a_handler_finds_new_then_done(pool, queue):
    one = await attempt(pool, queue)

    effect = await once(queue, one, "receipt:42")
    assert (effect.is_new, effect.is_unknown, effect.is_done) == (True, False, False)
    await effect.done({"id": 7})
    assert (effect.is_done, effect.result) == (True, {"id": 7})

    again = await once(queue, one, "receipt:42")
    assert (again.key, again.is_done, again.result) == ("receipt:42", True, {"id": 7})
    with pytest.raises(RuntimeError, match="'receipt:42' is done already"):
        await again.done()


async def test_a_handler_is_told_of_a_takeover_and_of_its_own_end(pool, queue, clock: Clock):
    old = await attempt(pool, queue)
    begun = await once(queue, old, "k")
    new = await take_over(old, queue, clock)

    with pytest.raises(LeaseLost, match="no hold of the effect 'k'"):
        await begun.done()
    with pytest.raises(LeaseLost, match="may begin no effect"):
        await once(queue, old, "k")
    assert (await once(queue, new, "k")).is_unknown


async def test_a_handler_that_is_stopped_still_writes_down_what_it_did(pool, queue):
    one = await attempt(pool, queue)
    effect = await once(queue, one, "k")

    with anyio.CancelScope() as scope:
        scope.cancel()
        await effect.done()

    assert (await queue.reserve_effect(one.claim, "k")).answer == "done"


@pytest.mark.parametrize("key", [f"long {list(range(5_000))}", "with a NUL\0"])
async def test_what_an_index_cannot_hold_is_kept_by_its_digest(pool, queue, key):
    one = await attempt(pool, queue)

    await (await once(queue, one, key)).done()

    assert (await once(queue, one, key)).is_done
    assert (await once(queue, one, f"{key}.")).is_new


@pytest.mark.parametrize("key", ["", None, 42])
async def test_a_key_is_a_text(pool, queue, key):
    with pytest.raises(ValueError, match="takes a text that names the effect"):
        await once(queue, await attempt(pool, queue), key)


async def test_an_effect_that_was_refused_is_given_back_and_found_new(pool, queue):
    one, other = await attempt(pool, queue), await attempt(pool, queue)
    effect = await once(queue, one, "k")

    await effect.release()

    assert (effect.is_new, effect.is_unknown, effect.is_done) == (False, False, False)
    assert await rows(pool) == []
    assert (await once(queue, other, "k")).is_new
    for again in (effect.done, effect.release):
        with pytest.raises(RuntimeError, match="the effect 'k' is released already"):
            await again()


async def test_an_unknown_effect_stays_unknown_though_its_repetition_was_refused(pool, queue):
    one = await attempt(pool, queue)
    await once(queue, one, "k")
    effect = await once(queue, one, "k")

    await effect.release()

    assert effect.is_unknown
    assert (await once(queue, one, "k")).is_unknown


async def test_what_is_done_is_not_given_back(pool, queue):
    one = await attempt(pool, queue)
    effect = await once(queue, one, "k")
    await effect.done(7)

    with pytest.raises(RuntimeError, match="is done already"):
        await effect.release()
    assert not await queue.release_effect(one.claim, "k")
    assert (await once(queue, one, "k")).result == 7


async def test_who_lost_its_lease_gives_nothing_back(pool, queue, clock: Clock):
    old = await attempt(pool, queue)
    begun = await once(queue, old, "k")
    new = await take_over(old, queue, clock)

    with pytest.raises(LeaseLost, match="no hold of the effect 'k'"):
        await begun.release()
    assert (await once(queue, new, "k")).is_unknown


async def test_a_handler_that_is_stopped_still_gives_back_what_was_refused(pool, queue):
    one = await attempt(pool, queue)
    effect = await once(queue, one, "k")

    with anyio.CancelScope() as scope:
        scope.cancel()
        await effect.release()

    assert await rows(pool) == []


async def test_a_result_is_json(pool, queue):
    effect = await once(queue, await attempt(pool, queue), "k")

    with pytest.raises(ValueError, match="the result of an effect is not JSON"):
        await effect.done({1, 2})
    assert effect.is_new


async def test_two_jobs_that_want_one_effect_do_it_once_and_both_succeed(
    pool, open_queue: OpenQueue
):
    done: list[int] = []
    results: list[object] = []

    async def run(job: Job) -> None:
        effect = await job.once("receipt:42")
        if not effect.is_done:
            with anyio.fail_after(10):
                while not await pool.fetchval("select count(*) from reliq.attempts"):
                    await anyio.sleep(0.01)
            done.append(job.id)
            await effect.done(job.id)
        results.append(effect.result)

    jobs = [await enqueue(pool, "job") for _ in range(2)]
    worker = new_worker(open_queue(kinds=("job",)), App(handlers={"job": run}))
    worker.retry = SOON

    await run_until_all_succeeded(pool, worker)

    assert len(done) == 1
    assert results == done * 2
    row = await pool.fetchrow("select job_id, ended, error from reliq.attempts limit 1")
    [other] = {job.job_id for job in jobs} - set(done)
    assert tuple(row) == (
        other, "again", f"EffectTaken: job {done[0]} is at the effect 'receipt:42'"
    )  # fmt: skip
    assert await pool.fetchval("select max(attempt) from reliq.jobs") == 1, "it cost no attempt"


async def test_effects_come_before_the_transaction_that_settles_the_job(
    pool, open_queue: OpenQueue
):
    said: list[str] = []

    async def refused(asking: Any) -> None:
        with pytest.raises(RuntimeError) as error:
            await asking
        said.append(str(error.value))

    async def run(job: Job) -> None:
        effect = await job.once("k")
        async with job.transaction():
            await refused(job.once("other"))
            await refused(effect.done())
            await refused(effect.release())
        await refused(job.once("k"))

    await enqueue(pool, "job")
    worker = new_worker(open_queue(kinds=("job",)), App(handlers={"job": run}))
    await run_until_all_succeeded(pool, worker)

    words = "comes before job.transaction(), which settles the job"
    assert said == [f"{what}() {words}" for what in ("once", "done", "release", "once")]


def test_an_effect_shows_what_was_found_and_not_how_it_works():
    effect = Effect("k", "new", None, _finish=print, _release=print)

    assert repr(effect) == "Effect(key='k', found='new', result=None)"
