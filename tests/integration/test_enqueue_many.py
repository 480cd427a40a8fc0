"""Many jobs at once: every one answered in its order, once per key, all of them or none."""

import random
from datetime import timedelta

import anyio
import asyncpg
import pytest

from reliq import DuplicateOf, Inserted, NewJob, enqueue, enqueue_many
from reliq.errors import StoreUnavailable
from reliq.postgres.enqueue import CHUNK
from reliq.postgres.enqueuer import open_enqueuer

pytestmark = pytest.mark.anyio


async def test_jobs_without_keys_are_made_in_their_order(pool: asyncpg.Pool):
    jobs = [
        NewJob(kind="job", payload={"n": n}, queue=f"q{n % 3}", priority=n % 10,
               run_in=timedelta(minutes=n))
        for n in range(50)
    ]  # fmt: skip
    async with pool.acquire() as connection:
        answers = await enqueue_many(connection, jobs)

    rows = await pool.fetch(
        "select id, payload ->> 'n' as n, queue, priority, key,"
        " round(extract(epoch from run_at - created_at) / 60)::int as minutes"
        " from reliq.jobs order by id"
    )
    assert [answer.job_id for answer in answers] == [row["id"] for row in rows]
    assert all(isinstance(answer, Inserted) for answer in answers)
    assert [
        (row["n"], row["queue"], row["priority"], row["minutes"], row["key"]) for row in rows
    ] == [(str(n), f"q{n % 3}", n % 10, n, f"job:{row['id']}") for n, row in enumerate(rows)]


async def test_more_than_a_statement_takes_are_still_one_transaction(pool: asyncpg.Pool):
    jobs = [NewJob(kind="job")] * (CHUNK + 1)
    async with pool.acquire() as connection:
        with pytest.raises(ValueError, match="priority"):
            await enqueue_many(connection, [*jobs, NewJob(kind="job", priority=10)])
        assert await pool.fetchval("select count(*) from reliq.jobs") == 0

        answers = await enqueue_many(connection, jobs)

    assert len({answer.job_id for answer in answers}) == CHUNK + 1


async def test_a_rollback_of_the_caller_leaves_none(pool: asyncpg.Pool):
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await enqueue_many(connection, [NewJob(kind="job"), NewJob(kind="job", key="k")])
        await transaction.rollback()

    assert await pool.fetchval("select count(*) from reliq.jobs") == 0
    assert await pool.fetchval("select count(*) from reliq.job_keys") == 0


@pytest.mark.parametrize("last", [NewJob(kind="job"), NewJob(kind="job", key="k")])
async def test_cut_off_in_the_middle_it_leaves_none_though_the_caller_commits(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch, last: NewJob
):
    monkeypatch.setattr("reliq.postgres.enqueue.CHUNK", 2)
    async with pool.acquire() as connection, connection.transaction():
        with anyio.CancelScope() as scope:
            payload = Cutting(scope)
            await enqueue_many(connection, [last, last, NewJob(kind="job", payload=payload), last])
        assert scope.cancelled_caught
        await enqueue(connection, "mine")

    assert await pool.fetchval("select array_agg(kind) from reliq.jobs") == ["mine"]


class Cutting(dict[str, int]):
    """A payload that ends a scope when it is encoded."""

    def __init__(self, scope: anyio.CancelScope):
        super().__init__(n=1)
        self.scope = scope

    def items(self):
        self.scope.cancel()
        return super().items()


async def test_keys_are_taken_once_also_among_each_other(pool: asyncpg.Pool):
    first = await enqueue(pool, "job", key="b")
    jobs = [NewJob(kind="job", key=key) for key in ("c", "b", "a", "c", None, "a")]
    async with pool.acquire() as connection:
        answers = await enqueue_many(connection, jobs)

    assert [type(answer) for answer in answers] == [
        Inserted, DuplicateOf, Inserted, DuplicateOf, Inserted, DuplicateOf,
    ]  # fmt: skip
    assert answers[1].job_id == first.job_id
    assert answers[3].job_id == answers[0].job_id
    assert answers[5].job_id == answers[2].job_id


async def test_batches_of_the_same_keys_at_once_make_each_once_and_never_deadlock(
    pool: asyncpg.Pool,
):
    answers: list[Inserted | DuplicateOf] = []
    keys = [f"k{n}" for n in range(40)]

    async def ask(seed: int) -> None:
        shuffled = random.Random(seed).sample(keys, len(keys))
        async with pool.acquire() as connection:
            answers.extend(
                await enqueue_many(connection, [NewJob(kind="job", key=key) for key in shuffled])
            )

    async with anyio.create_task_group() as tasks:
        for seed in range(8):
            tasks.start_soon(ask, seed)

    assert sum(isinstance(answer, Inserted) for answer in answers) == len(keys)
    assert len(answers) == 8 * len(keys)
    assert await pool.fetchval("select count(*) from reliq.jobs") == len(keys)


async def test_nothing_asked_is_nothing_done(pool: asyncpg.Pool):
    async with pool.acquire() as connection:
        assert await enqueue_many(connection, []) == []


async def test_an_enqueuer_says_when_the_database_is_away(dsn: str):
    head, _, _ = dsn.rpartition("/")
    async with open_enqueuer(f"{head}/nowhere") as queue:
        with pytest.raises(StoreUnavailable):
            await queue.enqueue("job")
        with pytest.raises(StoreUnavailable):
            await queue.enqueue_many([NewJob(kind="job")])


async def test_what_the_block_raises_comes_out_as_it_is(dsn: str):
    with pytest.raises(KeyError):
        async with open_enqueuer(dsn) as queue:
            await queue.enqueue("job")
            raise KeyError("mine")
