"""The worker's loop in this process, on a store that loses replies."""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio
import pytest

from reliq.app import App
from reliq.domain.job import Claim, Inserted, NewJob
from reliq.domain.outcome import Requeue
from reliq.domain.retry import RetryPolicy
from reliq.errors import StoreUnavailable
from reliq.job import Job
from reliq.postgres.enqueue import enqueue, enqueue_many
from reliq.postgres.enqueuer import open_enqueuer
from reliq.postgres.listen import listen
from reliq.postgres.pool import Database
from reliq.worker.deadlines import Deadlines
from reliq.worker.hand import Hand
from reliq.worker.places import Places
from reliq.worker.run import Worker
from reliq.worker.runner import Runner
from reliq.worker.settler import Settler
from reliq.worker.wakeup import Wakeup
from tests.fixtures.store import LEASE, OpenQueue

pytestmark = pytest.mark.anyio


class LosesReplies:
    """A store whose first answer to a call is lost on the way, after the call has worked."""

    def __init__(self, queue: Any, call: str) -> None:
        self._queue, self._call = queue, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def claim_jobs(self, *asked: Any) -> Sequence[Claim]:
        claims = await self._queue.claim_jobs(*asked)
        self._lose("claim", claims)
        return claims

    async def settle_jobs(self, settlements: Any) -> Any:
        settled = await self._queue.settle_jobs(settlements)
        self._lose("settle", settlements)
        return settled

    def _lose(self, call: str, worth_losing: Sequence[Any]) -> None:
        if self._call == call and worth_losing:
            self._call = ""
            raise StoreUnavailable("the answer was lost")


def new_worker(queue: Any, app: App) -> Worker:
    dice = random.Random(1)
    hand = Hand(asyncio.get_running_loop(), LEASE.total_seconds())
    return Worker(
        app=app, queue=queue, hand=hand, places=Places(5),
        runner=Runner(
            app=app, queue=queue, time_limit=timedelta(minutes=5),
            limiter=anyio.CapacityLimiter(math.inf),
        ),
        settler=Settler(queue=queue, hand=hand, retry_s=0.01, dice=dice),
        deadlines=Deadlines(hand=hand, shortest_s=300),
        wakeup=Wakeup(poll_s=0.01, dice=dice), retry=RetryPolicy(), grace=timedelta(seconds=5),
        dice=dice, abandon=lambda: None,
    )  # fmt: skip


async def run_until_all_succeeded(pool: Any, worker: Worker) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        with anyio.fail_after(20):
            while await pool.fetchval("select count(*) from reliq.jobs where state <> 'succeeded'"):
                await anyio.sleep(0.01)
        worker.stop.set()


@pytest.mark.parametrize("call", ["claim", "settle"])
async def test_a_lost_reply_loses_no_job_and_runs_none_twice(pool, open_queue: OpenQueue, call):
    ran: list[int] = []

    async def run(job: Job) -> None:
        ran.append(job.id)

    for _ in range(3):
        await enqueue(pool, "job")
    queue = LosesReplies(open_queue(kinds=("job",)), call)

    await run_until_all_succeeded(pool, new_worker(queue, App(handlers={"job": run})))

    jobs = await pool.fetch("select id, attempt from reliq.jobs order by id")
    assert sorted(ran) == [job["id"] for job in jobs]
    assert [job["attempt"] for job in jobs] == [1, 1, 1]


async def test_a_worker_that_stops_in_doubt_hands_back_what_it_never_heard_of(
    pool, open_queue: OpenQueue
):
    made = await enqueue(pool, "job")
    queue = LosesReplies(open_queue(kinds=("job",)), "claim")
    worker = new_worker(queue, App(handlers={"job": lambda _: None}))
    worker.wakeup.poll_s = 60
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        with anyio.fail_after(10):
            while not worker._in_doubt:
                await anyio.sleep(0.01)
        worker.stop.set()

    row = await pool.fetchrow("select state, attempt from reliq.jobs where id = $1", made.job_id)
    assert tuple(row) == ("queued", 0)


async def test_a_worker_never_holds_more_than_its_places(pool, open_queue: OpenQueue):
    running, most = 0, 0

    async def run(_: Job) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.01)
        running -= 1

    await pool.execute(
        "insert into reliq.jobs (kind, key) select 'job', 'k' || n from generate_series(1, 60) n"
    )
    worker = new_worker(open_queue(kinds=("job",)), App(handlers={"job": run}))

    await run_until_all_succeeded(pool, worker)

    assert most == 5


class FailsToGiveBack(LosesReplies):
    """A store that is away for the first settlement of jobs that go back to the queue."""

    async def settle_jobs(self, settlements: Any) -> Any:
        self._lose("give back", [what for _, what in settlements if isinstance(what, Requeue)])
        return await self._queue.settle_jobs(settlements)


async def test_suspects_that_could_not_be_given_back_are_not_held_for_ever(
    pool, open_queue: OpenQueue
):
    async def run(_: Job) -> None: ...

    for _ in range(3):
        await enqueue(pool, "job")
    await pool.execute("update reliq.jobs set lost_leases = 2")
    queue = FailsToGiveBack(open_queue(kinds=("job",)), "give back")

    await run_until_all_succeeded(pool, new_worker(queue, App(handlers={"job": run})))

    assert await pool.fetchval("select max(attempt) from reliq.jobs") == 1


async def test_slow_work_fills_its_own_places_only_and_each_at_once(pool, open_queue: OpenQueue):
    """The poll is an hour: who waited for one of its own places was woken when it was free."""
    running, most = Counter[str](), Counter[str]()

    async def run(job: Job) -> None:
        queue = job.payload["queue"]
        running[queue] += 1
        most[queue] = max(most[queue], running[queue])
        await anyio.sleep(0.01)
        running[queue] -= 1

    for queue in ["slow"] * 12 + ["quick"] * 3:
        await enqueue(pool, "job", {"queue": queue}, queue=queue)
    worker = new_worker(open_queue(kinds=("job",)), App(handlers={"job": run}))
    worker.places = Places(5, {"slow": 2})
    worker.wakeup.poll_s = 3_600

    await run_until_all_succeeded(pool, worker)

    assert most == {"slow": 2, "quick": 3}


async def test_a_full_worker_claims_for_several_free_places_at_once(pool, open_queue: OpenQueue):
    """Its handlers end one by one; a claim for each would cost the server more than the job."""
    asked: list[int] = []
    queue = open_queue(kinds=("job",))

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(queue, name)

        async def claim_jobs(self, places: int, rooms: Any) -> Sequence[Claim]:
            claims = await queue.claim_jobs(places, rooms)
            asked.extend([places] * bool(claims))
            return claims

    async def run(_: Job) -> None:
        await anyio.sleep(0.0005)

    async with pool.acquire() as connection:
        await enqueue_many(connection, [NewJob(kind="job")] * 400)
    worker = new_worker(Counted(), App(handlers={"job": run}))
    worker.places = Places(40)

    await run_until_all_succeeded(pool, worker)

    assert max(asked) == 20
    assert len(asked) <= 400 // 10 + 5


async def test_a_job_enqueued_from_a_pool_of_its_own_wakes_an_idle_worker(pool, dsn, open_queue):
    started = anyio.Event()

    async def run(_: Job) -> None:
        started.set()

    worker = new_worker(open_queue(kinds=("job",)), App(handlers={"job": run}))
    worker.wakeup.poll_s = 3600
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen, Database(dsn=dsn), worker.wakeup.ring)
        tasks.start_soon(worker.run)
        async with open_enqueuer(dsn) as queue:
            with anyio.fail_after(10):
                made = await queue.enqueue("job", {"n": 1})
                await started.wait()
        worker.stop.set()
        while await pool.fetchval("select count(*) from reliq.jobs where state <> 'succeeded'"):
            await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()

    assert isinstance(made, Inserted)
