"""Events that come at once: committed together, answered apart, and none at another's cost."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import anyio
import asyncpg
import pytest

from reliq.domain.event import Duplicate, Stored
from reliq.domain.job import NewJob
from reliq.errors import StoreUnavailable
from reliq.ports import NewEvent
from reliq.postgres.groups import GROUP_MAX, WRITERS
from reliq.postgres.inbox import GROUP_PATIENCE, GROUPED_BYTES, PostgresInbox
from reliq.postgres.pool import Database

pytestmark = pytest.mark.anyio

MANY = WRITERS * GROUP_MAX + 20
LOCKED = "insert into reliq.event_keys values ('demo', '{}', 77, reliq.now() + interval '1 day')"


def event(key: str | None, *, job: NewJob | None = None, body: bytes = b"{}") -> NewEvent:
    jobs = [job or NewJob(kind="demo", payload={"of": key})]
    return NewEvent(
        source="demo", dedup_key=key, headers={}, body=body, parse_error=None, jobs=jobs
    )


@pytest.fixture
async def inbox(dsn: str) -> AsyncIterator[PostgresInbox]:
    database = Database(dsn=dsn)
    async with (
        database.pool("reliq tests", 10) as pool,
        database.pool("reliq tests", 10, lock_timeout=GROUP_PATIENCE) as grouped,
    ):
        yield PostgresInbox(
            pool=pool, grouped=grouped, deadline=timedelta(seconds=8), key_ttl=timedelta(days=1)
        )


async def store(inbox: PostgresInbox, events: Sequence[NewEvent]) -> list[object]:
    """Have them stored at once; what is raised takes the place of an answer."""
    answers: list[object] = [None] * len(events)

    async def one(n: int) -> None:
        try:
            answers[n] = await inbox.store_event(events[n])
        except (StoreUnavailable, asyncpg.PostgresError) as error:
            answers[n] = error

    async with anyio.create_task_group() as tasks:
        for n in range(len(events)):
            tasks.start_soon(one, n)
    return answers


async def groups(pool: asyncpg.Pool) -> list[int]:
    """Count the events of each transaction."""
    rows = await pool.fetch("select count(*) from reliq.events group by xmin::text")
    return [row["count"] for row in rows]


async def test_many_at_once_share_few_commits_and_each_gets_its_own_answer(inbox, pool):
    keys = [f"k{n * 7 % MANY}" for n in range(MANY)]
    answers = await store(inbox, [event(key) for key in keys])

    rows = await pool.fetch(
        "select e.id, e.dedup_key, j.payload ->> 'of' as of from reliq.events e"
        " join reliq.jobs j on j.event_id = e.id and j.xmin = e.xmin"
    )
    assert {row["dedup_key"]: Stored(row["id"], 1) for row in rows} == dict(
        zip(keys, answers, strict=True)
    )
    assert all(row["of"] == row["dedup_key"] for row in rows)
    sizes = await groups(pool)
    assert len(sizes) <= WRITERS + MANY // GROUP_MAX + 1
    assert max(sizes) <= GROUP_MAX


async def test_copies_in_one_group_are_one_event(inbox, pool):
    answers = await store(inbox, [event(key) for key in ["a", "b", "c"] * 20])

    new = [answer for answer in answers if isinstance(answer, Stored)]
    assert len(new) == 3
    assert sum(isinstance(answer, Duplicate) for answer in answers) == 57
    assert await pool.fetchval("select count(*) from reliq.jobs") == 3


async def test_two_receivers_that_get_the_same_keys_make_each_once(inbox, pool):
    keys = [f"k{n}" for n in range(40)]
    answers: list[object] = []

    async def deliver(order: list[str]) -> None:
        receiver = PostgresInbox(
            pool=pool, grouped=pool, deadline=inbox.deadline, key_ttl=inbox.key_ttl
        )
        answers.extend(await store(receiver, [event(key) for key in order]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deliver, keys)
        tasks.start_soon(deliver, keys[::-1])

    assert sum(isinstance(answer, Stored) for answer in answers) == 40
    assert sum(isinstance(answer, Duplicate) for answer in answers) == 40


REFUSED = """
    create function refuse() returns trigger language plpgsql
      as $$begin if new.kind = 'cursed' then raise 'no'; end if; return new; end$$;
    create trigger refuse before insert on reliq.jobs for each row execute function refuse()
"""


@pytest.mark.parametrize(
    "rule",
    ["alter table reliq.jobs add check (kind <> 'cursed')", REFUSED],
    ids=["check", "trigger"],
)
async def test_what_the_tables_do_not_take_is_refused_alone(inbox, pool, rule):
    await pool.execute(rule)
    events = [event(f"k{n}") for n in range(30)]
    events[17] = event("k17", job=NewJob(kind="cursed"))

    answers = await store(inbox, events)

    assert isinstance(answers.pop(17), asyncpg.PostgresError)
    assert all(isinstance(answer, Stored) for answer in answers)
    assert await pool.fetchval("select count(*) from reliq.events") == 29


async def test_a_locked_key_holds_up_nobody_else_however_often_it_comes(inbox, pool, dsn):
    other = await asyncpg.connect(dsn)
    await other.execute(f"begin; {LOCKED.format('k')}")

    answers = await store(inbox, [event("k")] * 30 + [event(f"k{n}") for n in range(30)])
    await other.execute("commit")
    await other.close()

    assert all(isinstance(answer, StoreUnavailable) for answer in answers[:30])
    assert all(isinstance(answer, Stored) for answer in answers[30:])
    assert await pool.fetchval("select count(*) from reliq.events") == 30
    assert await store(inbox, [event("k")] * 3) == [Duplicate(77)] * 3


async def test_an_inbox_without_groups_stores_each_by_itself(inbox, pool):
    inbox.grouped = None

    answers = await store(inbox, [event(f"k{n}") for n in range(20)])

    assert all(isinstance(answer, Stored) for answer in answers)
    assert await groups(pool) == [1] * 20


@pytest.mark.parametrize(
    "alone",
    [event("a", job=NewJob(kind="demo", key="mine")), event("a", body=b"x" * (GROUPED_BYTES + 1))],
    ids=["a job with a key of its own", "a large body"],
)
async def test_what_may_take_long_is_committed_by_itself(inbox, pool, alone):
    answers = await store(inbox, [event("b"), alone, event("c"), event("d")])

    assert all(isinstance(answer, Stored) for answer in answers)
    assert await pool.fetchval(
        "select count(*) from reliq.events where xmin ="
        " (select xmin from reliq.events where dedup_key = 'a')"
    ) == 1  # fmt: skip


async def test_when_the_tables_are_locked_all_are_told_in_time_and_nothing_is_stored(
    inbox, pool, dsn
):
    inbox.deadline = timedelta(milliseconds=300)
    other = await asyncpg.connect(dsn)
    await other.execute("begin; lock table reliq.events in exclusive mode")

    answers = await store(inbox, [event(f"k{n}") for n in range(MANY)])
    await other.execute("rollback")
    await other.close()

    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert await pool.fetchval("select count(*) from reliq.events") == 0
    assert all(isinstance(answer, Stored) for answer in await store(inbox, [event("k0")] * 1))
