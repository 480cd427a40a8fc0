"""
Every door into the queue keeps the same rules: in the caller's transaction, or not at all.

A door is one way to write the same program: in one transaction, enqueue some jobs, then commit
or roll back. A new driver is one more function in DOORS, and one line in REFUSING.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Literal

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from psycopg.rows import dict_row
from psycopg.types.string import StrDumper
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_async

from reliq import DuplicateOf, Inserted, NewJob, enqueue, enqueue_many
from reliq.domain.job import Enqueued, check_job
from reliq.enqueue_with import django as with_django
from reliq.enqueue_with import enqueue_answer
from reliq.enqueue_with import psycopg as with_psycopg
from reliq.enqueue_with import sqlalchemy as with_sqlalchemy
from tests.fixtures.postgres import ask

Jobs = Sequence[NewJob]
End = Literal["commit", "rollback"]
Door = Callable[[str, Jobs, End], list[Enqueued]]


async def by_asyncpg(dsn: str, jobs: Jobs, end: End) -> list[Enqueued]:
    connection = await asyncpg.connect(dsn)
    try:
        mine = connection.transaction()
        await mine.start()
        answers = [await enqueue(connection, **fields(job)) for job in jobs]
        await getattr(mine, end)()
    finally:
        await connection.close()
    return answers


async def by_asyncpg_at_once(dsn: str, jobs: Jobs, end: End) -> list[Enqueued]:
    connection = await asyncpg.connect(dsn)
    try:
        mine = connection.transaction()
        await mine.start()
        answers = await enqueue_many(connection, jobs)
        await getattr(mine, end)()
    finally:
        await connection.close()
    return answers


def by_psycopg(dsn: str, jobs: Jobs, end: End) -> list[Enqueued]:
    with (
        psycopg.connect(dsn) as connection,
        connection.transaction(force_rollback=end == "rollback"),
    ):
        return [with_psycopg.enqueue(connection, job) for job in jobs]


def by_psycopg_of_other_habits(dsn: str, jobs: Jobs, end: End) -> list[Enqueued]:
    """Rows are dictionaries, parameters are written $1, and texts are sent as such."""
    with psycopg.connect(dsn, row_factory=dict_row, cursor_factory=psycopg.RawCursor) as connection:
        connection.adapters.register_dumper(str, StrDumper)
        answers = [with_psycopg.enqueue(connection, job) for job in jobs]
        getattr(connection, end)()
    return answers


async def by_psycopg_async(dsn: str, jobs: Jobs, end: End) -> list[Enqueued]:
    async with (
        await psycopg.AsyncConnection.connect(dsn) as connection,
        connection.transaction(force_rollback=end == "rollback"),
    ):
        return [await with_psycopg.enqueue_async(connection, job) for job in jobs]


def by_sqlalchemy_core(dsn: str, jobs: Jobs, end: End) -> list[Enqueued]:
    with engine(dsn) as made, made.connect() as connection:
        answers = [with_sqlalchemy.enqueue(connection, job) for job in jobs]
        getattr(connection, end)()
    return answers


def by_sqlalchemy_orm(dsn: str, jobs: Jobs, end: End) -> list[Enqueued]:
    with engine(dsn) as made, orm.Session(made) as session:
        answers = [with_sqlalchemy.enqueue(session, job) for job in jobs]
        getattr(session, end)()
    return answers


async def by_sqlalchemy_async_core(dsn: str, jobs: Jobs, end: End) -> list[Enqueued]:
    async with async_engine(dsn, "asyncpg") as made, made.connect() as connection:
        answers = [await with_sqlalchemy.enqueue_async(connection, job) for job in jobs]
        await getattr(connection, end)()
    return answers


async def by_sqlalchemy_async_orm(dsn: str, jobs: Jobs, end: End) -> list[Enqueued]:
    async with (
        async_engine(dsn, "psycopg") as made,
        sqlalchemy_async.AsyncSession(made) as session,
    ):
        answers = [await with_sqlalchemy.enqueue_async(session, job) for job in jobs]
        await getattr(session, end)()
    return answers


def by_django(dsn: str, jobs: Jobs, end: End) -> list[Enqueued]:
    with database_of_django(dsn) as using, transaction.atomic(using=using):
        answers = [with_django.enqueue(job, using=using) for job in jobs]
        transaction.set_rollback(end == "rollback", using=using)
    return answers


def by_sql(dsn: str, jobs: Jobs, end: End) -> list[Enqueued]:
    """Any other language."""
    call = """select * from reliq.enqueue(%(kind)s, %(payload)s::jsonb, key => %(key)s,
        run_in => %(run_in)s, queue => %(queue)s, priority => %(priority)s,
        group_key => %(group_key)s, group_running => %(group_running)s)"""
    with psycopg.connect(dsn) as connection:
        answers = [
            enqueue_answer(
                connection.execute(
                    call, fields(job) | {"payload": json.dumps(job.payload)}
                ).fetchone()
            )
            for job in jobs
        ]
        getattr(connection, end)()
    return answers


def fields(job: NewJob) -> dict[str, Any]:
    return {name: getattr(job, name) for name in job.__dataclass_fields__}


def address(dsn: str, driver: str) -> str:
    return dsn.replace("postgresql://", f"postgresql+{driver}://")


@contextmanager
def engine(dsn: str) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(address(dsn, "psycopg"))
    try:
        yield made
    finally:
        made.dispose()


@asynccontextmanager
async def async_engine(dsn: str, driver: str) -> AsyncIterator[sqlalchemy_async.AsyncEngine]:
    made = sqlalchemy_async.create_async_engine(address(dsn, driver))
    try:
        yield made
    finally:
        await made.dispose()


@contextmanager
def database_of_django(dsn: str) -> Iterator[str]:
    if not settings.configured:
        settings.configure(DATABASES={})
        django.setup()
    url, name = sqlalchemy.make_url(dsn), "of_this_test"
    connections.databases[name] = connections.configure_settings({
        "default": {},
        name: {
            "ENGINE": "django.db.backends.postgresql", "NAME": url.database, "USER": url.username,
            "PASSWORD": url.password, "HOST": url.host, "PORT": url.port,
        },
    })[name]  # fmt: skip
    try:
        yield name
    finally:
        connections[name].close()
        del connections[name]


DOORS = {
    door.__name__.removeprefix("by_"): door
    for door in (
        by_asyncpg, by_asyncpg_at_once, by_psycopg, by_psycopg_of_other_habits, by_psycopg_async,
        by_sqlalchemy_core, by_sqlalchemy_orm, by_sqlalchemy_async_core, by_sqlalchemy_async_orm,
        by_django, by_sql,
    )
}  # fmt: skip


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Door:
    found = DOORS[request.param]
    if not asyncio.iscoroutinefunction(found):
        return found
    return lambda *arguments: asyncio.run(found(*arguments))


def rows(dsn: str) -> list[dict[str, Any]]:
    found = ask(dsn, "select coalesce(json_agg(j order by id), '[]') from reliq.jobs j")
    return json.loads(found)


def test_a_rollback_leaves_nothing_and_a_commit_leaves_one(door: Door, dsn: str):
    for jobs in ([NewJob(kind="job")], [NewJob(kind="job", key="k")]):
        door(dsn, jobs, "rollback")
        assert rows(dsn) == []
        assert ask(dsn, "select count(*) from reliq.job_keys") == 0

    [answer] = door(dsn, [NewJob(kind="job", key="k")], "commit")
    assert [row["id"] for row in rows(dsn)] == [answer.job_id]
    assert answer == Inserted(answer.job_id)


def test_a_second_of_the_same_key_is_answered_with_the_first(door: Door, dsn: str):
    job = NewJob(kind="job", key="k")

    first, second = door(dsn, [job, job], "commit")
    [third] = door(dsn, [job], "commit")

    assert first == Inserted(first.job_id)
    assert [second, third] == [DuplicateOf(first.job_id)] * 2
    assert len(rows(dsn)) == 1


def test_what_a_job_is_arrives_whatever_its_letters_are(door: Door, dsn: str):
    text = "Zoë, Ω, 雪, 🎈, \"'\\ %s %(kind)s :kind $1 ; -- /* ?"
    wish = NewJob(
        kind="grüße", payload={"an": text, text: [1.5, None, True]}, key=text, queue="später",
        priority=2, run_in=timedelta(hours=1),
    )  # fmt: skip

    door(dsn, [wish], "commit")

    [row] = rows(dsn)
    names = ("kind", "payload", "key", "queue", "priority")
    assert {name: row[name] for name in names} == {name: fields(wish)[name] for name in names}
    assert ask(dsn, "select run_at - created_at from reliq.jobs") == wish.run_in


def test_a_group_and_how_many_of_it_may_run_arrive(door: Door, dsn: str):
    door(dsn, [NewJob(kind="job", group_key="a", group_running=2)] * 3, "commit")

    assert [(row["group_key"], row["blocked"]) for row in rows(dsn)] == [
        ("a", False), ("a", False), ("a", True)
    ]  # fmt: skip
    assert ask(dsn, "select running from reliq.job_groups") == 2


def test_a_job_without_key_is_known_by_its_id(door: Door, dsn: str):
    [answer] = door(dsn, [NewJob(kind="job")], "commit")

    assert [row["key"] for row in rows(dsn)] == [f"job:{answer.job_id}"]


BAD = (
    NewJob(kind=""),
    NewJob(kind="nul\0"),
    NewJob(kind="job", queue="q" * 201),
    NewJob(kind="job", priority=10),
    NewJob(kind="job", run_in=timedelta(seconds=-1)),
    NewJob(kind="job", run_in=timedelta(days=4_000)),
    NewJob(kind="job", payload={"at": timedelta(1)}),
    NewJob(kind="job", key="event:370:job:1"),
    NewJob(kind="job", key=17),
    NewJob(kind="job", group_key="a", group_running=0),
    NewJob(kind="job", group_running=2),
)
NOBODY: Any = None
"""A connection that cannot send anything."""

REFUSING: dict[str, Callable[[NewJob], object]] = {
    "asyncpg": lambda job: asyncio.run(enqueue(NOBODY, **fields(job))),
    "psycopg": lambda job: with_psycopg.enqueue(NOBODY, job),
    "psycopg_async": lambda job: asyncio.run(with_psycopg.enqueue_async(NOBODY, job)),
    "sqlalchemy": lambda job: with_sqlalchemy.enqueue(NOBODY, job),
    "sqlalchemy_async": lambda job: asyncio.run(with_sqlalchemy.enqueue_async(NOBODY, job)),
    "django": lambda job: with_django.enqueue(job, using="nobody"),
}


@pytest.mark.parametrize("name", REFUSING)
def test_a_bad_job_is_refused_with_the_same_words_before_anything_is_sent(name: str):
    for job in BAD:
        with pytest.raises(ValueError) as expected:  # noqa: PT011 - compared below
            check_job(job)
        with pytest.raises(ValueError) as refused:  # noqa: PT011
            REFUSING[name](job)
        assert str(refused.value) == str(expected.value)


def test_a_bad_job_takes_its_transaction_along(door: Door, dsn: str):
    with pytest.raises((ValueError, psycopg.DataError), match="priority is 0"):
        door(dsn, [NewJob(kind="job"), NewJob(kind="job", priority=10)], "commit")

    assert rows(dsn) == []


def test_reliq_itself_imports_none_of_these_drivers():
    program = (
        "import sys, reliq, reliq.cli, reliq.enqueue_with\n"
        "print(sorted({'psycopg', 'sqlalchemy', 'django'} & sys.modules.keys()))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert told.stdout.strip() == b"[]"
