"""Limits of queues hold under a race and leak nothing; pauses; the breaker."""

import math
from collections import Counter
from datetime import timedelta

import anyio
import asyncpg
import pytest

from reliq.domain.job import Claim
from reliq.domain.outcome import Succeed
from reliq.errors import RequestRefused, SchemaMismatch
from reliq.postgres.enqueue import enqueue
from reliq.postgres.limits import Limit, Limits
from reliq.postgres.queue import PostgresQueue
from tests.fixtures.postgres import Clock
from tests.fixtures.store import LEASE, OpenQueue, buried, failed

pytestmark = pytest.mark.anyio

SOON = timedelta(seconds=30)
WAITING = """
    select exists (select from pg_stat_activity
                   where datname = current_database() and wait_event_type = 'Lock')
"""


@pytest.fixture
def queue(open_queue: OpenQueue) -> PostgresQueue:
    return open_queue(kinds=("job",), alerts=False)


@pytest.fixture
def limits(pool: asyncpg.Pool) -> Limits:
    return Limits(pool)


async def put(pool: asyncpg.Pool, count: int, queue: str = "crm", priority: int = 5) -> None:
    for _ in range(count):
        await enqueue(pool, "job", queue=queue, priority=priority)


async def fresh(queue: PostgresQueue, places: int = 100, **rooms: int) -> list[Claim]:
    """Claim with eyes as fresh as a second makes them."""
    queue._lanes_found_at = float("-inf")
    return list(await queue.claim_jobs(places, rooms))


async def done(queue: PostgresQueue, *claims: Claim) -> None:
    await queue.settle_jobs([(claim, Succeed()) for claim in claims])


async def probed(pool: asyncpg.Pool, queue: PostgresQueue, limits: Limits, clock: Clock) -> Claim:
    """Have the breaker open, with four jobs behind it, and claim its probe."""
    await limits.impose("crm", Limit(opens_after=1, open_for=SOON))
    await put(pool, 5)
    [one] = await fresh(queue, 1)
    await queue.settle_jobs([(one, failed(after=999))])
    await clock.forward(31)
    [probe] = await fresh(queue)
    return probe


async def test_no_more_run_than_the_limit_says_and_an_end_makes_room(pool, queue, limits):
    await limits.impose("crm", Limit(running=3))
    await put(pool, 10)

    first = await fresh(queue)
    assert len(first) == 3
    assert await fresh(queue) == []
    await done(queue, *first[:2])

    assert len(await fresh(queue)) == 2


async def test_other_queues_are_not_held_up(pool, queue, limits):
    await limits.impose("crm", Limit(running=1))
    await put(pool, 5, "crm", priority=0)
    await put(pool, 5, "mail")

    assert Counter(claim.queue for claim in await fresh(queue)) == {"crm": 1, "mail": 5}


async def test_an_urgent_limited_queue_comes_before_a_backlog_without_limits(pool, queue, limits):
    await limits.impose("crm", Limit(running=2))
    await put(pool, 50, "bulk", priority=9)
    await put(pool, 5, "crm", priority=5)
    await put(pool, 1, "now", priority=0)

    assert [claim.queue for claim in await fresh(queue, 4)] == ["now", "crm", "crm", "bulk"]


async def test_holders_that_fell_silent_count_until_their_lease_ends(
    pool, queue, limits, clock: Clock
):
    await limits.impose("crm", Limit(running=2))
    await put(pool, 4)
    assert len(await fresh(queue)) == 2

    await clock.forward(LEASE.total_seconds() - 1)
    assert await fresh(queue) == []
    await clock.forward(2)

    assert len(await fresh(queue)) == 2


async def test_a_lease_that_ended_is_not_renewed_whose_place_another_has(
    pool, queue, limits, clock: Clock
):
    await limits.impose("crm", Limit(running=1))
    await put(pool, 2)
    [first] = await fresh(queue)
    await clock.forward(LEASE.total_seconds() + 1)
    [second] = await fresh(queue)
    assert second.job_id != first.job_id

    assert await queue.renew_leases([first.held, second.held]) == {second.job_id: False}


@pytest.mark.parametrize("how", [failed(after=60), buried()], ids=["failed", "dead"])
async def test_every_ending_makes_room(pool, queue, limits, how):
    await limits.impose("crm", Limit(running=1))
    await put(pool, 2)
    [first] = await fresh(queue)

    await queue.settle_jobs([(first, how)])

    assert len(await fresh(queue)) == 1


async def test_sixteen_claimers_never_exceed_it_and_all_is_done(pool, open_queue, limits):
    await limits.impose("crm", Limit(running=7))
    await put(pool, 120)
    running, most, ended = 0, 0, 0

    async def work(n: int) -> None:
        nonlocal running, most, ended
        queue = open_queue(f"w{n}", kinds=("job",), alerts=False)
        while ended < 120:
            claims = await fresh(queue, 3)
            running += len(claims)
            most = max(most, running)
            await anyio.sleep(0.002)
            running -= len(claims)  # before the settle: what is counted is never too much
            await done(queue, *claims)
            ended += len(claims)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for n in range(16):
                tasks.start_soon(work, n)

    assert 2 <= most <= 7


async def test_a_rate_lets_a_burst_go_and_then_so_many_a_second(pool, queue, limits, clock: Clock):
    await limits.impose("crm", Limit(rate=2, burst=5))
    await put(pool, 30)

    first = await fresh(queue)
    assert len(first) == 5
    await clock.forward(1)
    assert len(await fresh(queue)) in {2, 3}  # the test took some time itself
    await clock.forward(3600)

    assert len(await fresh(queue)) == 5
    assert all(claim.attempt == 1 for claim in first)


async def test_the_breaker_opens_probes_and_closes(pool, queue, limits, clock: Clock):
    await limits.impose("crm", Limit(opens_after=3, open_for=SOON))
    await put(pool, 20)
    batch = await fresh(queue, 3)
    await queue.settle_jobs([(claim, failed()) for claim in batch])

    assert await fresh(queue) == []
    await clock.forward(31)
    [probe] = await fresh(queue)
    assert await fresh(queue) == [], "one at a time"
    await queue.settle_jobs([(probe, failed(after=999))])
    assert await fresh(queue) == [], "a probe that fails keeps it open"
    await clock.forward(31)
    [probe] = await fresh(queue)
    await done(queue, probe)

    assert len(await fresh(queue)) >= 10


async def test_a_probe_that_succeeds_in_its_own_transaction_closes_the_breaker(
    pool, queue, limits, clock: Clock
):
    probe = await probed(pool, queue, limits, clock)

    async with queue.transaction(probe):
        pass

    assert len(await fresh(queue)) == 3


async def test_what_a_lost_lease_brought_opens_nothing(pool, queue, limits, clock: Clock):
    await limits.impose("crm", Limit(opens_after=1, open_for=SOON))
    await put(pool, 2)
    [one] = await fresh(queue, 1)
    await clock.forward(LEASE.total_seconds() + 1)
    await queue.reap_jobs()

    settled = await queue.settle_jobs([(one, failed())])

    assert settled.lost == {one.job_id}
    assert len(await fresh(queue)) == 2


async def test_a_success_between_failures_keeps_the_breaker_closed(pool, queue, limits):
    await limits.impose("crm", Limit(opens_after=2, open_for=SOON))
    await put(pool, 10)
    for _ in range(3):
        one, other = await fresh(queue, 2)
        await queue.settle_jobs([(one, failed(after=99))])
        await done(queue, other)

    assert len(await fresh(queue)) == 4


async def test_the_last_jobs_of_a_queue_are_told_to_its_breaker(pool, queue, limits):
    await limits.impose("crm", Limit(opens_after=1, open_for=SOON))
    await put(pool, 1)
    [one] = await fresh(queue)
    assert await fresh(queue) == []  # nothing is queued any more, of this queue or another

    await queue.settle_jobs([(one, failed(after=0))])

    assert await fresh(queue) == []


async def test_what_no_upstream_is_to_blame_for_opens_nothing(pool, queue, limits):
    await limits.impose("crm", Limit(opens_after=1, open_for=SOON))
    await put(pool, 3)
    [one] = await fresh(queue, 1)

    await queue.settle_jobs([(one, buried())])

    assert len(await fresh(queue)) == 2


async def test_a_probe_whose_worker_died_is_replaced(pool, queue, limits, clock: Clock):
    probe = await probed(pool, queue, limits, clock)

    await clock.forward(LEASE.total_seconds() + 1)

    [next_probe] = await fresh(queue)
    assert next_probe.job_id != probe.job_id


async def test_a_late_success_of_before_does_not_close_an_open_breaker(pool, queue, limits):
    await limits.impose("crm", Limit(opens_after=1, open_for=SOON))
    await put(pool, 5)
    early, bad = await fresh(queue, 2)
    await queue.settle_jobs([(bad, failed())])

    await done(queue, early)

    assert await fresh(queue) == []


async def test_a_paused_queue_and_a_paused_kind_wait(pool, open_queue, limits):
    queue = open_queue(kinds=("job", "mail"), alerts=False)
    await put(pool, 1, "crm")
    await put(pool, 1, "bulk")
    await enqueue(pool, "mail", queue="bulk")
    await limits.pause("queue", "crm", by="me", reason="they move")
    await limits.pause("kind", "mail", by="me", reason="")

    assert [(claim.queue, claim.kind) for claim in await fresh(queue)] == [("bulk", "job")]
    await limits.resume("queue", "crm")
    await limits.resume("kind", "mail")
    assert len(await fresh(queue)) == 2


async def test_a_worker_claims_of_its_queues_only(pool, open_queue):
    queue = open_queue(kinds=("job",), queues=frozenset({"crm"}))
    await put(pool, 1, "crm")
    await put(pool, 1, "bulk")

    assert [claim.queue for claim in await fresh(queue)] == ["crm"]


async def test_a_claim_takes_no_more_of_a_queue_than_it_has_room_for(pool, queue):
    """Of all its lanes together, also where others stand between them."""
    await put(pool, 2, "slow", priority=0)
    await put(pool, 5, "slow", priority=9)
    await put(pool, 5, "quick", priority=5)
    await put(pool, 5, "other", priority=5)

    claims = await fresh(queue, slow=3)

    assert Counter(claim.queue for claim in claims) == {"slow": 3, "quick": 5, "other": 5}
    assert await fresh(queue, slow=0) == []
    assert len(await fresh(queue, slow=1)) == 1


async def test_room_and_limit_of_a_queue_hold_both(pool, queue, limits):
    await limits.impose("crm", Limit(running=3))
    await put(pool, 10)

    first = await fresh(queue, crm=2)
    second = await fresh(queue, crm=5)

    assert (len(first), len(second)) == (2, 1)


async def test_an_end_under_a_limit_wakes_who_wants_its_place(pool, open_queue, limits):
    """Else the next would start at the next poll: four at a time, a second apart."""
    rung = []
    queue = open_queue(ring=lambda: rung.append(1))
    await limits.impose("crm", Limit(running=1))
    await put(pool, 2)
    [claim] = await fresh(queue)

    await done(queue, claim)

    assert rung == [1]


async def test_a_limit_that_is_lifted_limits_nothing(pool, queue, limits):
    await limits.impose("crm", Limit(running=0))
    await put(pool, 3)
    assert await fresh(queue) == []

    await limits.lift("crm")

    assert len(await fresh(queue)) == 3


async def test_a_smaller_limit_counts_who_runs_already(pool, queue, limits):
    await limits.impose("crm", Limit(running=4))
    await put(pool, 10)
    first = await fresh(queue)

    await limits.impose("crm", Limit(running=2))
    assert await fresh(queue) == []
    await done(queue, *first[:2])  # who remains has places that the limit no longer counts to
    assert await fresh(queue) == []
    await done(queue, first[2])
    assert len(await fresh(queue)) == 1


async def test_a_limit_counts_who_runs_when_it_is_set(pool, queue, limits):
    await put(pool, 3)
    await put(pool, 1, "mail")
    first = [claim for claim in await fresh(queue) if claim.queue == "crm"]
    await put(pool, 5)

    await limits.impose("crm", Limit(running=2))
    assert [row["running"] for row in await limits.show()] == [3]
    assert await fresh(queue) == []
    await done(queue, *first[:2])

    assert len(await fresh(queue)) == 1


async def test_a_limit_that_is_taken_off_and_set_at_once_counts_who_runs(pool, queue, limits):
    await limits.impose("crm", Limit(running=2))
    await put(pool, 5)
    first = await fresh(queue)
    await done(queue, first[0])

    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("delete from reliq.limits where queue = 'crm'")
        await connection.execute("select reliq.limit_queue('crm', max_running => 2)")

    assert len(await fresh(queue)) == 1


async def test_an_open_transaction_on_a_limit_stops_its_queue_and_no_other(pool, queue, limits):
    await limits.impose("crm", Limit(running=5))
    await put(pool, 2, "urgent", priority=0)
    await put(pool, 2, "crm")
    await put(pool, 2, "bulk", priority=9)

    with anyio.fail_after(20):
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("select reliq.limit_queue('crm', max_running => 6)")
            first = await fresh(queue)

    assert Counter(claim.queue for claim in first) == {"urgent": 2, "bulk": 2}
    assert len(await fresh(queue)) == 2


async def test_a_claim_that_waited_for_a_limit_claims_nothing_of_what_is_paused_by_then(
    pool, queue, limits
):
    await pool.execute("alter function reliq.claim_limited reset lock_timeout")
    await limits.impose("crm", Limit(running=5))
    await put(pool, 2)
    claims = []

    async def claim() -> None:
        claims.append(await fresh(queue))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:  # noqa: SIM117 - the lock ends before it
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute("select from reliq.limits for update")
                tasks.start_soon(claim)
                while not await pool.fetchval(WAITING):
                    await anyio.sleep(0.01)
                await limits.pause("queue", "crm", by="me", reason="drain")

    assert claims == [[]]


async def test_what_was_claimed_is_handed_over_though_the_next_claim_fails(pool, queue, limits):
    await limits.impose("crm", Limit(running=5))
    await put(pool, 2, "urgent", priority=0)
    await put(pool, 2, "crm")
    await pool.execute("alter function reliq.room rename to no_room")

    assert [claim.queue for claim in await fresh(queue)] == ["urgent", "urgent"]
    await pool.execute("alter function reliq.no_room rename to room")
    with pytest.raises(SchemaMismatch):  # so that the worker asks what else was leased
        await fresh(queue)
    assert [claim.queue for claim in await fresh(queue)] == ["crm", "crm"]


@pytest.mark.parametrize("rate", [1e308, math.inf, math.nan])
async def test_a_rate_that_no_clock_can_count_is_refused(pool, rate):
    with pytest.raises(ValueError, match="a rate is"):
        Limit(rate=rate)
    with pytest.raises(asyncpg.CheckViolationError):
        await pool.execute("select reliq.limit_queue('crm', rate => $1)", rate)


@pytest.mark.parametrize(
    "figures", [{"running": -1}, {"rate": 0.0}, {"burst": 0}, {"opens_after": 0}]
)
def test_figures_out_of_range_are_refused(figures):
    with pytest.raises(ValueError, match=r"not|from 1"):
        Limit(**figures)


async def test_what_is_not_there_cannot_be_lifted_or_resumed(limits):
    with pytest.raises(RequestRefused, match="has no limits"):
        await limits.lift("crm")
    with pytest.raises(RequestRefused, match="is not paused"):
        await limits.resume("kind", "job")


async def test_they_are_shown_with_what_runs(pool, queue, limits):
    await limits.impose("crm", Limit(running=3, opens_after=5))
    await put(pool, 2)
    await fresh(queue)
    await limits.pause("kind", "job", by="me", reason="why")

    queues, kinds = await limits.show()

    assert (queues["name"], queues["running"], queues["max_running"]) == ("crm", 2, 3)
    assert (kinds["scope"], kinds["name"], kinds["paused_by"]) == ("kind", "job", "me")
