"""The queue on a real Postgres: keys, claims, fences, retries, takeovers, dead letters."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import anyio
import asyncpg
import pytest

from reliq.domain.job import DuplicateOf, Inserted, State
from reliq.domain.outcome import Requeue, Succeed, SucceedWith
from reliq.errors import LeaseLost
from reliq.postgres.enqueue import enqueue
from reliq.postgres.queue import PostgresQueue
from tests.fixtures.postgres import Clock
from tests.fixtures.store import LEASE, OpenQueue, buried, failed

pytestmark = pytest.mark.anyio


async def job(pool: asyncpg.Pool, job_id: int) -> asyncpg.Record:
    row = await pool.fetchrow("select * from reliq.jobs where id = $1", job_id)
    assert row is not None
    return row


async def alerts(pool: asyncpg.Pool) -> list[asyncpg.Record]:
    return await pool.fetch("select * from reliq.jobs where kind = 'alert' order by id")


# Enqueue ------------------------------------------------------------------------------------


async def test_a_second_job_with_the_same_key_is_not_made(pool):
    first = await enqueue(pool, "job", {"n": 1}, key="order:1")

    second = await enqueue(pool, "job", {"n": 2}, key="order:1")

    assert first == Inserted(first.job_id)
    assert second == DuplicateOf(first.job_id)
    assert await pool.fetchval("select count(*) from reliq.jobs") == 1


async def test_fifty_enqueues_of_one_key_at_once_make_one_job_and_all_get_an_answer(pool):
    answers = []

    async def ask() -> None:
        answers.append(await enqueue(pool, "job", key="once"))

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(ask)

    assert Counter(type(answer) for answer in answers) == {Inserted: 1, DuplicateOf: 49}
    assert len({answer.job_id for answer in answers}) == 1


async def test_two_kinds_may_use_the_same_key(pool):
    assert isinstance(await enqueue(pool, "job", key="order:1"), Inserted)
    assert isinstance(await enqueue(pool, "mail", key="order:1"), Inserted)


async def test_a_key_outlives_its_job(pool):
    first = await enqueue(pool, "job", key="slot")
    await pool.execute("delete from reliq.jobs")

    assert await enqueue(pool, "job", key="slot") == DuplicateOf(first.job_id)


async def test_a_key_may_be_used_again_once_it_has_expired(pool, clock: Clock):
    await enqueue(pool, "job", key="slot")
    await clock.forward(36 * 86400)

    assert isinstance(await enqueue(pool, "job", key="slot"), Inserted)


async def test_a_job_of_the_callers_transaction_exists_only_if_it_commits(pool):
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await enqueue(connection, "job", key="k")
        await transaction.rollback()
        assert await connection.fetchval("select count(*) from reliq.jobs") == 0
        async with connection.transaction():
            await enqueue(connection, "job", key="k")

    assert await pool.fetchval("select count(*) from reliq.jobs") == 1


async def test_the_sql_function_is_the_same_door(pool, queue: PostgresQueue):
    made = await pool.fetchrow(
        "select * from reliq.enqueue('mail', '{\"to\": 7}', key => 'k', priority => 0)"
    )

    assert await enqueue(pool, "mail", key="k") == DuplicateOf(made["job_id"])
    [claim] = await queue.claim_jobs(5)
    assert (claim.key, claim.payload) == ("k", {"to": 7})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("''", "needs a kind"),
        ("null", "needs a kind"),
        ("repeat('k', 201)", "1 to 200 bytes"),
        ("'job', queue => repeat('q', 201)", "1 to 200 bytes"),
        ("'job', priority => 10", "0 (first) to 9"),
        ("'job', key => repeat('k', 513)", "at most 512 bytes"),
        ("'job', run_in => '-1 s'", "a delay from now"),
        ("'job', '[1]'", "a JSON object, not array"),
    ],
)
async def test_the_sql_function_refuses_in_words(pool, arguments, says):
    with pytest.raises(
        asyncpg.InvalidParameterValueError, match=says.replace("(", r"\(").replace(")", r"\)")
    ):
        await pool.fetch(f"select reliq.enqueue({arguments})")


# Claim --------------------------------------------------------------------------------------


async def test_thirty_claims_at_once_take_each_of_twenty_jobs_exactly_once(
    pool, open_queue: OpenQueue
):
    for n in range(20):
        await enqueue(pool, "job", {"n": n})
    claimed = []

    async def claim(worker: int) -> None:
        claimed.extend(await open_queue(f"w{worker}").claim_jobs(1))

    async with anyio.create_task_group() as tasks:
        for worker in range(30):
            tasks.start_soon(claim, worker)

    assert sorted(claim.payload["n"] for claim in claimed) == list(range(20))


async def test_a_claim_takes_at_most_what_there_is_room_for(pool, queue: PostgresQueue):
    for queue_name in ("default", "reports", "urgent"):
        for priority in (0, 5, 9):
            await enqueue(pool, "job", queue=queue_name, priority=priority)

    assert len(await queue.claim_jobs(4)) == 4


async def test_urgent_jobs_are_claimed_first_and_then_the_oldest(pool, queue: PostgresQueue):
    order = [("late", 5), ("urgent", 0), ("later", 5), ("idle", 9)]
    for name, priority in order:
        await enqueue(pool, "job", {"name": name}, priority=priority)

    claims = await queue.claim_jobs(10)

    assert [claim.payload["name"] for claim in claims] == ["urgent", "late", "later", "idle"]


async def test_a_delayed_job_is_not_claimed_before_its_moment(
    pool, queue: PostgresQueue, clock: Clock
):
    await enqueue(pool, "job", run_in=timedelta(minutes=15))

    assert await queue.claim_jobs(5) == []
    await clock.forward(15 * 60 - 1)
    assert await queue.claim_jobs(5) == []
    await clock.forward(1)
    assert len(await queue.claim_jobs(5)) == 1


async def test_a_kind_nobody_knows_stays_queued_unspent_and_is_named(pool, queue: PostgresQueue):
    made = await enqueue(pool, "mystery")

    assert await queue.claim_jobs(5) == []
    assert await queue.find_unknown_kinds() == {"mystery": 1}
    row = await job(pool, made.job_id)
    assert (row["state"], row["attempt"]) == (State.QUEUED, 0)


async def test_a_job_committed_late_behind_the_cursor_is_found(pool, queue: PostgresQueue):
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        late = await enqueue(slow, "job", {"n": "late"})
        for n in range(3):
            await enqueue(pool, "job", {"n": n})
        assert len(await queue.claim_jobs(3)) == 3
        await transaction.commit()

    await queue.claim_jobs(1)  # behind the cursor: comes short, and rewinds
    found = await queue.claim_jobs(1)

    assert late.job_id in {claim.job_id for claim in found} | await running(pool)


async def running(pool: asyncpg.Pool) -> set[int]:
    rows = await pool.fetch("select id from reliq.jobs where state = 'running'")
    return {row["id"] for row in rows}


# Settle -------------------------------------------------------------------------------------


async def test_a_settled_job_has_succeeded(pool, queue: PostgresQueue):
    made = await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)

    settled = await queue.settle_jobs([(claim, Succeed())])

    assert not settled.lost
    assert (await job(pool, made.job_id))["state"] == State.SUCCEEDED


async def test_a_result_is_kept_with_its_job(pool, queue: PostgresQueue):
    for _ in range(3):
        await enqueue(pool, "job")
    one, two, plain = await queue.claim_jobs(3)

    settled = await queue.settle_jobs(
        [(two, SucceedWith('{"n": 2}')), (plain, Succeed()), (one, SucceedWith("null"))]
    )

    assert not settled.lost
    rows = await pool.fetch("select id, state, result::text from reliq.jobs")
    assert {tuple(row) for row in rows} == {
        (one.job_id, "succeeded", "null"),
        (two.job_id, "succeeded", '{"n": 2}'),
        (plain.job_id, "succeeded", None),
    }


async def test_a_result_of_a_lost_lease_is_refused(pool, queue: PostgresQueue):
    made = await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)
    await queue.settle_jobs([(claim, failed())])
    await queue.claim_jobs(1)

    settled = await queue.settle_jobs([(claim, SucceedWith("1"))])

    assert settled.lost == {made.job_id}
    assert (await job(pool, made.job_id))["result"] is None


async def test_an_attempt_keeps_the_class_of_its_error(pool, queue: PostgresQueue):
    await enqueue(pool, "job")
    for settlement in (
        replace(failed(), error_class="httpx.ConnectTimeout"),
        Requeue(after=timedelta(0), ended="again", spends=False),
        replace(buried(), error_class="PermanentError"),
    ):
        [claim] = await queue.claim_jobs(1)
        await queue.settle_jobs([(claim, settlement)])

    rows = await pool.fetch("select ended, error_class from reliq.attempts order by fence")
    assert [tuple(row) for row in rows] == [
        ("failed", "httpx.ConnectTimeout"),
        ("again", None),
        ("failed", "PermanentError"),
    ]


async def test_pairs_of_id_and_fence_are_matched_exactly(pool, queue: PostgresQueue):
    await enqueue(pool, "job")
    [first] = await queue.claim_jobs(1)
    await queue.settle_jobs([(first, failed())])
    await enqueue(pool, "job")
    one, two = sorted(await queue.claim_jobs(2), key=lambda claim: claim.fence)
    assert (one.fence, two.fence) == (1, 2)

    ids, crossed = [one.job_id, two.job_id], [two.fence, one.fence]
    for name in ("settle_succeeded", "settle_with_result", "renew_leases"):
        more = {"settle_with_result": (["1", "2"],), "renew_leases": (LEASE,)}.get(name, ())
        assert await queue._fetch(name, ids, crossed, *more) == []
        assert len(await queue._fetch(name, ids, crossed[::-1], *more)) == 2
        await pool.execute("update reliq.jobs set state = 'running'")


async def test_a_failed_attempt_waits_its_pause(pool, queue: PostgresQueue, clock: Clock):
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)

    await queue.settle_jobs([(claim, failed(after=60))])

    assert await queue.claim_jobs(1) == []
    await clock.forward(60)
    [again] = await queue.claim_jobs(1)
    assert (again.attempt, again.fence) == (2, claim.fence + 1)


async def test_again_and_a_hand_back_cost_no_attempt(pool, queue: PostgresQueue):
    made = await enqueue(pool, "job")
    for ended in ("again", "handed_back"):
        [claim] = await queue.claim_jobs(1)
        assert claim.attempt == 1
        await queue.settle_jobs([(claim, Requeue(after=timedelta(0), ended=ended, spends=False))])

    recorded = await pool.fetch("select ended, attempt from reliq.attempts order by fence")
    assert [tuple(row) for row in recorded] == [("again", 1), ("handed_back", 1)]
    assert (await job(pool, made.job_id))["attempt"] == 0


async def test_a_settlement_of_each_sort_can_share_a_batch(pool, queue: PostgresQueue):
    for _ in range(3):
        await enqueue(pool, "job")
    done, back, dead = await queue.claim_jobs(3)

    settled = await queue.settle_jobs(
        [(done, Succeed()), (back, failed(error="a")), (dead, buried("b"))]
    )

    assert not settled.lost
    states = [(await job(pool, claim.job_id))["state"] for claim in (done, back, dead)]
    errors = [(await job(pool, claim.job_id))["last_error"] for claim in (done, back, dead)]
    assert states == ["succeeded", "queued", "dead"]
    assert errors == [None, "a", "b"]


async def test_a_worker_whose_lease_was_lost_changes_nothing(
    pool, open_queue: OpenQueue, clock: Clock
):
    first, second = open_queue("w1"), open_queue("w2")
    await enqueue(pool, "job")
    [old] = await first.claim_jobs(1)
    await clock.forward(31)
    await second.reap_jobs()
    [new] = await second.claim_jobs(1)

    for settlement in (Succeed(), failed(), buried()):
        assert (await first.settle_jobs([(old, settlement)])).lost == {old.job_id}
    assert await first.renew_leases([(old.job_id, old.fence)]) == {}
    assert not await first.isolate_job(old)
    with pytest.raises(LeaseLost):
        async with first.transaction(old):
            pass

    assert not (await second.settle_jobs([(new, Succeed())])).lost


async def test_a_dead_letter_never_moves(pool, queue: PostgresQueue, clock: Clock):
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)
    await queue.settle_jobs([(claim, buried())])
    before = dict(await job(pool, claim.job_id))

    await clock.forward(3600)
    await queue.reap_jobs()
    for settlement in (Succeed(), failed(), buried("other")):
        assert (await queue.settle_jobs([(claim, settlement)])).lost

    assert dict(await job(pool, claim.job_id)) == before


# Reaper -------------------------------------------------------------------------------------


async def test_a_job_stuck_in_running_comes_back_after_its_lease(
    pool, open_queue: OpenQueue, clock: Clock
):
    first, second = open_queue("w1"), open_queue("w2")
    await enqueue(pool, "job")
    await first.claim_jobs(1)

    await clock.forward(29)
    assert await second.reap_jobs() == []
    await clock.forward(1)
    [reaped] = await second.reap_jobs()

    [taken_over] = await second.claim_jobs(1)
    assert taken_over.job_id == reaped.job_id
    assert (taken_over.attempt, taken_over.lost_leases) == (2, 1)


async def test_a_renewed_lease_is_not_taken_however_often_the_reaper_looks(
    pool, queue: PostgresQueue, clock: Clock
):
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)
    for _ in range(10):
        await clock.forward(20)
        assert await queue.renew_leases([(claim.job_id, claim.fence)]) == {claim.job_id: False}
        assert await queue.reap_jobs() == []

    await clock.forward(31)
    assert [reaped.job_id for reaped in await queue.reap_jobs()] == [claim.job_id]


async def test_crashes_use_up_the_attempts_and_then_the_job_is_dead_with_an_alert(
    pool, open_queue: OpenQueue, clock: Clock
):
    queue = open_queue(attempts_max={"job": 2, "alert": 8})
    made = await enqueue(pool, "job")
    for _ in range(2):
        await queue.claim_jobs(1)
        await clock.forward(31)
        await queue.reap_jobs()

    row = await job(pool, made.job_id)
    assert (row["state"], row["dead_reason"], row["attempt"]) == ("dead", "attempts", 2)
    [alert] = await alerts(pool)
    assert f'"job_id": {made.job_id}' in alert["payload"]


async def test_a_third_lost_lease_in_a_row_while_alone_is_poison(
    pool, queue: PostgresQueue, clock: Clock
):
    made = await enqueue(pool, "job")
    for lost in range(3):
        [claim] = await queue.claim_jobs(1)
        assert claim.is_suspect == (lost >= 2)
        if claim.is_suspect:
            assert await queue.isolate_job(claim)
        await clock.forward(31)
        await queue.reap_jobs()

    row = await job(pool, made.job_id)
    assert (row["state"], row["dead_reason"], row["attempt"]) == ("dead", "poison", 3)


async def test_a_suspect_that_was_lost_before_it_ran_alone_is_not_poison(
    pool, queue: PostgresQueue, clock: Clock
):
    made = await enqueue(pool, "job")
    for _ in range(4):
        await queue.claim_jobs(1)
        await clock.forward(31)
        await queue.reap_jobs()

    assert (await job(pool, made.job_id))["state"] == "queued"


async def test_an_attempt_that_ends_with_a_word_ends_the_row_of_lost_leases(
    pool, queue: PostgresQueue, clock: Clock
):
    await enqueue(pool, "job")
    for _ in range(2):
        await queue.claim_jobs(1)
        await clock.forward(31)
        await queue.reap_jobs()
    [suspect] = await queue.claim_jobs(1)
    await queue.settle_jobs([(suspect, failed())])

    [again] = await queue.claim_jobs(1)
    assert (suspect.lost_leases, again.lost_leases) == (2, 0)


async def test_a_row_locked_by_another_is_reaped_when_the_lock_is_gone(
    pool, queue: PostgresQueue, clock: Clock
):
    made = await enqueue(pool, "job")
    await queue.claim_jobs(1)
    await clock.forward(31)
    async with pool.acquire() as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("select from reliq.jobs where id = $1 for update", made.job_id)
        assert await queue.reap_jobs() == []
        await transaction.rollback()

    await clock.forward(60)
    assert len(await queue.reap_jobs()) == 1


async def test_a_claim_that_committed_behind_the_mark_is_found_by_the_check(
    pool, queue: PostgresQueue, clock: Clock
):
    await enqueue(pool, "job")
    await queue.claim_jobs(1)
    await clock.forward(3600)
    await pool.execute("update reliq.reaper set walked_to = reliq.now()")
    assert await queue.reap_jobs() == []

    await queue.check_reaper()

    assert len(await queue.reap_jobs()) == 1


async def test_a_mark_in_the_future_does_not_stop_the_reaper(
    pool, queue: PostgresQueue, clock: Clock
):
    await enqueue(pool, "job")
    await queue.claim_jobs(1)
    await pool.execute("update reliq.reaper set walked_to = reliq.now() + interval '1 year'")
    await clock.forward(31)

    assert len(await queue.reap_jobs()) == 1


async def test_a_deleted_mark_is_made_anew(pool, queue: PostgresQueue, clock: Clock):
    await pool.execute("delete from reliq.reaper")
    await enqueue(pool, "job")
    await queue.claim_jobs(1)
    await clock.forward(31)

    await queue.check_reaper()

    assert len(await queue.reap_jobs()) == 1


# A lost reply to a claim ----------------------------------------------------------------------


async def test_running_jobs_that_a_worker_does_not_hold_go_back_untried(
    pool, open_queue: OpenQueue
):
    mine, other = open_queue("w1"), open_queue("w2")
    for _ in range(3):
        await enqueue(pool, "job")
    [held] = await mine.claim_jobs(1)
    [unheard] = await mine.claim_jobs(1)
    [others] = await other.claim_jobs(1)

    assert await mine.hand_back_unheard([held.held]) == [unheard.job_id]

    assert await running(pool) == {held.job_id, others.job_id}
    [again] = await mine.claim_jobs(5)
    assert (again.job_id, again.attempt) == (unheard.job_id, 1)


# The handler's transaction ----------------------------------------------------------------------


async def test_a_handlers_writes_and_the_jobs_success_are_one_commit(pool, queue: PostgresQueue):
    await pool.execute("create table effects (job_id bigint)")
    made = await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)

    async with queue.transaction(claim) as tx:
        await tx.execute("insert into effects values ($1)", claim.job_id)
        assert await pool.fetchval("select count(*) from effects") == 0

    assert await pool.fetchval("select count(*) from effects") == 1
    assert (await job(pool, made.job_id))["state"] == "succeeded"


async def test_a_handler_that_raises_in_its_transaction_has_written_nothing(
    pool, queue: PostgresQueue
):
    await pool.execute("create table effects (job_id bigint)")
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)

    with pytest.raises(KeyError):
        async with queue.transaction(claim) as tx:
            await tx.execute("insert into effects values ($1)", claim.job_id)
            raise KeyError

    assert await pool.fetchval("select count(*) from effects") == 0
    assert await running(pool) == {claim.job_id}


async def test_nothing_is_written_when_the_lease_was_lost_inside_the_transaction(
    pool, open_queue: OpenQueue, clock: Clock
):
    await pool.execute("create table effects (job_id bigint)")
    first, second = open_queue("w1"), open_queue("w2")
    await enqueue(pool, "job")
    [claim] = await first.claim_jobs(1)

    with pytest.raises(LeaseLost):
        async with first.transaction(claim) as tx:
            await tx.execute("insert into effects values ($1)", claim.job_id)
            await clock.forward(31)
            await second.reap_jobs()

    assert await pool.fetchval("select count(*) from effects") == 0


@pytest.mark.parametrize(("end", "kept"), [("rollback", 0), ("commit", 1), ("abort", 0)])
async def test_a_transaction_that_the_handler_ended_is_no_success(
    pool, queue: PostgresQueue, end, kept
):
    await pool.execute("create table effects (job_id bigint)")
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)

    with pytest.raises(RuntimeError, match="ended the transaction"):
        async with queue.transaction(claim) as tx:
            await tx.execute("insert into effects values ($1)", claim.job_id)
            await tx.execute(end)

    assert await pool.fetchval("select count(*) from effects") == kept
    assert await running(pool) == {claim.job_id}
    async with queue.transaction(claim):
        pass
    assert await running(pool) == set()


async def test_a_cancelled_transaction_leaves_no_lock_and_no_broken_connection(
    pool, queue: PostgresQueue
):
    await pool.execute("create table effects (job_id bigint)")
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)

    with anyio.move_on_after(0.05):
        async with queue.transaction(claim) as tx:
            await tx.execute("insert into effects values ($1)", claim.job_id)
            await anyio.sleep_forever()

    assert (
        await pool.fetchval(
            "select count(*) from pg_stat_activity where state like 'idle in transaction%'"
            " and datname = current_database()"
        )
        == 0
    )
    assert not (await queue.settle_jobs([(claim, Succeed())])).lost


# Alerts -----------------------------------------------------------------------------------------


async def test_one_alert_for_many_jobs_that_die_of_one_error_in_one_window(
    pool, queue: PostgresQueue, clock: Clock
):
    for n in range(3):
        await enqueue(pool, "job", {"n": n})
    claims = await queue.claim_jobs(3)
    errors = ["no account 17", "no account 18", "another thing"]

    await queue.settle_jobs(
        [(claim, buried(error)) for claim, error in zip(claims, errors, strict=True)]
    )
    assert len(await alerts(pool)) == 2

    await enqueue(pool, "job")
    [claim] = [claim for claim in await queue.claim_jobs(5) if claim.kind == "job"]
    await clock.forward(3600)
    await queue.settle_jobs([(claim, buried("no account 19"))])
    assert len(await alerts(pool)) == 3


async def test_an_alert_that_dies_makes_no_alert(pool, queue: PostgresQueue):
    await enqueue(pool, "alert")
    [claim] = await queue.claim_jobs(1)

    await queue.settle_jobs([(claim, buried())])

    assert len(await alerts(pool)) == 1


async def test_an_app_without_an_alert_handler_gets_no_alerts(pool, open_queue: OpenQueue):
    queue = open_queue(kinds=("job",))
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)

    await queue.settle_jobs([(claim, buried())])

    assert await alerts(pool) == []
