"""Cancel: what waits is cancelled at once, what runs is stopped, and neither comes back."""

import asyncpg
import pytest

from reliq import State, cancel
from reliq.domain.outcome import Requeue, Succeed
from reliq.errors import RequestRefused
from reliq.postgres.enqueue import enqueue
from reliq.postgres.queue import PostgresQueue
from tests.fixtures.postgres import Clock
from tests.fixtures.processes import Seen, StartCommand
from tests.fixtures.store import LEASE, OpenQueue, buried, failed

pytestmark = pytest.mark.anyio


async def job(pool: asyncpg.Pool, job_id: int) -> asyncpg.Record:
    row = await pool.fetchrow("select * from reliq.jobs where id = $1", job_id)
    assert row is not None
    return row


async def endings(pool: asyncpg.Pool) -> list[str]:
    rows = await pool.fetch("select ended from reliq.attempts order by job_id, fence")
    return [row["ended"] for row in rows]


def back(ended: str) -> Requeue:
    return Requeue(after=LEASE * 0, ended=ended, spends=False)


# The rows ---------------------------------------------------------------------------------------


async def test_a_job_that_waits_is_cancelled_at_once_and_never_claimed(
    pool, queue: PostgresQueue, clock: Clock
):
    made = await enqueue(pool, "job")

    assert await cancel(pool, made.job_id, by="ann", reason="sent twice") is State.CANCELLED

    row = await job(pool, made.job_id)
    assert (row["state"], row["ready"]) == ("cancelled", False)
    assert (row["cancel_requested_by"], row["cancel_reason"]) == ("ann", "sent twice")
    assert row["finished_at"] == row["cancel_requested_at"] is not None
    await clock.forward(3600)
    assert await queue.claim_jobs(1) == []


async def test_who_asked_first_is_remembered(pool, queue: PostgresQueue):
    waiting, running = await enqueue(pool, "mail"), await enqueue(pool, "job", priority=0)
    [claim] = await queue.claim_jobs(1)
    for made, state in ((waiting, State.CANCELLED), (running, State.RUNNING)):
        await cancel(pool, made.job_id, by="ann", reason="sent twice")
        before = dict(await job(pool, made.job_id))
        assert await cancel(pool, made.job_id, by="bob") is state
        assert dict(await job(pool, made.job_id)) == before
    assert claim.job_id == running.job_id


async def test_what_has_ended_is_not_changed(pool, queue: PostgresQueue):
    for _ in range(2):
        await enqueue(pool, "job")
    done, dead = await queue.claim_jobs(2)
    await queue.settle_jobs([(done, Succeed()), (dead, buried())])
    before = await pool.fetch("select * from reliq.jobs order by id")

    assert await cancel(pool, done.job_id, by="ann") is State.SUCCEEDED
    assert await cancel(pool, dead.job_id, by="ann") is State.DEAD

    assert await pool.fetch("select * from reliq.jobs order by id") == before


async def test_a_number_that_no_job_has_and_a_cancel_by_nobody_are_refused(pool):
    with pytest.raises(RequestRefused, match="there is no job 7"):
        await cancel(pool, 7, by="ann")
    with pytest.raises(RequestRefused, match="say who asks"):
        await cancel(pool, 7, by=" ")
    with pytest.raises(asyncpg.InvalidParameterValueError, match="say who asks"):
        await pool.execute("select reliq.cancel(7, null)")


async def test_a_cancel_that_is_rolled_back_never_was(pool, queue: PostgresQueue):
    made = await enqueue(pool, "job")
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await cancel(connection, made.job_id, by="ann")
        await transaction.rollback()

    assert [claim.job_id for claim in await queue.claim_jobs(1)] == [made.job_id]


@pytest.mark.parametrize("settlement", [back("cancelled"), failed(), back("again"), back("handed_back")])  # fmt: skip
async def test_a_job_that_is_to_be_cancelled_does_not_go_back_to_the_queue(
    pool, queue: PostgresQueue, clock: Clock, settlement: Requeue
):
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)
    assert await cancel(pool, claim.job_id, by="ann") is State.RUNNING

    assert not (await queue.settle_jobs([(claim, settlement)])).lost

    row = await job(pool, claim.job_id)
    assert (row["state"], row["ready"], row["reap_at"]) == ("cancelled", False, None)
    assert row["finished_at"] is not None
    assert await endings(pool) == [settlement.ended]
    await clock.forward(3600)
    assert await queue.claim_jobs(1) == []


async def test_work_that_comes_to_its_end_first_is_done(pool, queue: PostgresQueue):
    for _ in range(2):
        await enqueue(pool, "job")
    done, dead = await queue.claim_jobs(2)
    for claim in (done, dead):
        await cancel(pool, claim.job_id, by="ann")

    await queue.settle_jobs([(done, Succeed()), (dead, buried())])

    assert (await job(pool, done.job_id))["state"] == "succeeded"
    assert (await job(pool, dead.job_id))["state"] == "dead"


async def test_the_lease_of_a_job_to_be_cancelled_ends_and_then_it_is_cancelled(
    pool, open_queue: OpenQueue, clock: Clock
):
    queue, other = open_queue("w1"), open_queue("w2")
    made = await enqueue(pool, "job")
    await pool.execute(
        "update reliq.jobs set attempt = 7, lost_leases = 2"
    )  # else it would be dead
    [claim] = await queue.claim_jobs(1)
    await clock.forward(20)
    await cancel(pool, made.job_id, by="ann")

    assert await queue.renew_leases([claim.held]) == {made.job_id: True}
    assert not await queue.isolate_job(claim)
    await clock.forward(10)
    [reaped] = await other.reap_jobs()

    assert (reaped.dead, reaped.alert_id) == (False, None)
    row = await job(pool, made.job_id)
    assert (row["state"], row["dead_reason"]) == ("cancelled", None)
    assert await endings(pool) == ["lease_lost"]
    assert await other.claim_jobs(1) == []


async def test_what_a_worker_never_heard_of_is_cancelled_instead_of_handed_back(
    pool, queue: PostgresQueue
):
    await enqueue(pool, "job")
    [claim] = await queue.claim_jobs(1)
    await cancel(pool, claim.job_id, by="ann")

    assert await queue.hand_back_unheard([]) == [claim.job_id]

    assert (await job(pool, claim.job_id))["state"] == "cancelled"
    assert await queue.claim_jobs(1) == []


async def test_a_worker_finds_what_is_to_be_cancelled_among_what_it_holds(
    pool, queue: PostgresQueue
):
    for _ in range(3):
        await enqueue(pool, "job")
    first, second, third = await queue.claim_jobs(3)
    for claim in (first, third):
        await cancel(pool, claim.job_id, by="ann")

    assert await queue.find_cancelled([first.held, second.held]) == {first.job_id}
    assert await queue.find_cancelled([(third.job_id, third.fence + 1)]) == frozenset()


# Workers ----------------------------------------------------------------------------------------

FAR = {"lease": "60s"}
"""With such a lease only a notification brings the word in time."""


async def cancelled(pool: asyncpg.Pool, seen: Seen, kind: str, payload: dict[str, float]) -> int:
    """Let a job begin, cancel it, and wait until it is over."""
    made = await enqueue(pool, kind, payload)
    await seen.wait_for("began")
    assert await cancel(pool, made.job_id, by="ann") is State.RUNNING
    await seen.at_rest()
    return made.job_id


async def test_a_running_handler_is_stopped_soon_and_its_place_is_free(
    pool, seen: Seen, start: StartCommand
):
    worker = start("worker", "--concurrency", "1", **FAR)

    job_id = await cancelled(pool, seen, "slow", {"seconds": 60})

    assert len(await seen.notes("stopped")) == 1
    assert (await seen.job(job_id))["state"] == "cancelled"
    assert await endings(pool) == ["cancelled"]
    await worker.logged("attempt.ended")
    assert '"settled": "cancelled"' in worker.log
    await enqueue(pool, "quick")
    await seen.wait_for("ran")


async def test_without_a_notification_the_renewal_tells(pool, seen: Seen, start: StartCommand):
    start("worker", lease="3s")
    made = await enqueue(pool, "slow", {"seconds": 60})
    await seen.wait_for("began")
    await pool.execute(
        "update reliq.jobs set cancel_requested_at = reliq.now(), cancel_requested_by = 'ann'"
    )

    await seen.at_rest()
    assert len(await seen.notes("stopped")) == 1
    assert (await seen.job(made.job_id))["state"] == "cancelled"
    assert await endings(pool) == ["cancelled"]


async def test_a_function_in_a_thread_is_abandoned_and_keeps_its_place(
    pool, seen: Seen, start: StartCommand
):
    worker = start("worker", **FAR)

    job_id = await cancelled(pool, seen, "plain", {"seconds": 2})

    assert (await seen.job(job_id))["state"] == "cancelled"
    assert await seen.notes("ended") == []
    await worker.logged("attempt.abandoned")


@pytest.mark.parametrize("kind", ["blocking", "deaf"])
async def test_a_handler_that_does_not_stop_is_abandoned_with_its_lease(
    pool, seen: Seen, start: StartCommand, kind: str
):
    workers = [start("worker", lease="1s", time_limit="60s") for _ in range(2)]

    job_id = await cancelled(pool, seen, kind, {"seconds": 5})

    assert (await seen.job(job_id))["state"] == "cancelled"
    assert await endings(pool) == ["lease_lost"]
    assert len(await seen.notes("began")) == 1
    assert sum(worker.log.count('"event": "attempt.abandoned"') for worker in workers) == 1


async def test_a_worker_that_stops_while_it_cancels_puts_nothing_back(
    pool, seen: Seen, start: StartCommand
):
    worker = start("worker", grace="100ms", **FAR)
    made = await enqueue(pool, "deaf", {"seconds": 60})
    await seen.wait_for("began")
    await cancel(pool, made.job_id, by="ann")
    worker.process.terminate()

    assert await worker.exit_code() == 0
    assert (await seen.job(made.job_id))["state"] == "cancelled"
