"""The inbox on a real Postgres: what is stored, once, and what happens when nobody answers."""

import contextlib
import hashlib
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import asyncpg
import pytest

from reliq.domain.event import Duplicate, Stored
from reliq.domain.job import NewJob
from reliq.errors import StoreUnavailable
from reliq.ports import NewEvent
from reliq.postgres.enqueue import enqueue
from reliq.postgres.inbox import CALL_OFF_S, PostgresInbox
from reliq.postgres.migrate import migrate
from reliq.postgres.pool import Database
from reliq.servers import open_server
from tests.fixtures.postgres import IMAGE, PROVIDER

pytestmark = pytest.mark.anyio

PATIENT = timedelta(seconds=10)
DEADLINE = timedelta(milliseconds=300)
SLACK_S = 0.7
"""What a loaded machine may add: a deadline that is not kept is missed by seconds."""


def event(**changes):
    fields = {
        "source": "demo",
        "dedup_key": "k",
        "headers": {"content-type": "application/json"},
        "body": b"{}",
        "parse_error": None,
        "jobs": [NewJob(kind="demo", payload={"n": 1})],
    }
    return NewEvent(**fields | changes)


def inbox_on(pool, deadline=PATIENT):
    return PostgresInbox(pool=pool, grouped=pool, deadline=deadline, key_ttl=timedelta(days=35))


@pytest.fixture
def inbox(pool):
    return inbox_on(pool)


async def counts(pool):
    row = await pool.fetchrow(
        "select (select count(*) from reliq.events), (select count(*) from reliq.jobs), "
        "(select count(*) from reliq.event_keys)"
    )
    return tuple(row)


async def test_an_event_and_its_jobs_are_one_commit(inbox, pool):
    jobs = [NewJob(kind="a"), NewJob(kind="b", payload={"x": "ю\0"}, key="mine")]

    answer = await inbox.store_event(event(jobs=jobs))

    assert answer == Stored(answer.event_id, 2)
    rows = await pool.fetch(
        "select kind, payload::text, key, xmin::text from reliq.jobs where event_id = $1 "
        "order by kind",
        answer.event_id,
    )
    [stored] = await pool.fetch("select xmin::text, headers::text from reliq.events")
    assert [(row["kind"], row["payload"], row["key"]) for row in rows] == [
        ("a", "{}", f"event:{answer.event_id}:a:1"),
        ("b", '{"x": "ю\ufffd"}', "mine"),
    ]
    assert {row["xmin"] for row in rows} == {stored["xmin"]}
    assert stored["headers"] == '{"content-type": "application/json"}'


async def test_a_group_of_an_events_jobs_has_as_many_places_as_they_say(inbox, pool):
    jobs = [NewJob(kind="a", group_key="g", group_running=2)] * 3

    await inbox.store_event(event(jobs=jobs))

    blocked = await pool.fetch("select blocked from reliq.jobs order by id")
    assert [row["blocked"] for row in blocked] == [False, False, True]


async def test_no_caller_can_take_a_key_that_is_made_up(inbox, pool):
    await inbox.store_event(event(jobs=[NewJob(kind="a:1"), NewJob(kind="a:1")]))

    keys = [row["key"] for row in await pool.fetch("select key from reliq.jobs")]
    assert len(keys) == 2
    for key in keys:
        with pytest.raises(ValueError, match="makes up"):
            await enqueue(pool, "a:1", key=key)
        with pytest.raises(asyncpg.InvalidParameterValueError, match="makes up"):
            await pool.fetch("select reliq.enqueue('a:1', key => $1)", key)
        assert (
            await pool.fetchval("select duplicate from reliq.enqueue('b', key => $1)", key) is False
        )


async def test_an_event_whose_job_fails_to_be_stored_is_not_stored_either(inbox, pool):
    await pool.execute("alter table reliq.jobs add check (kind <> 'cursed')")

    with pytest.raises(asyncpg.CheckViolationError):
        await inbox.store_event(event(jobs=[NewJob(kind="fine"), NewJob(kind="cursed")]))

    assert await counts(pool) == (0, 0, 0)


async def test_fifty_deliveries_of_one_event_at_once_are_one_event_and_all_are_answered(
    inbox, pool
):
    answers = []

    async def deliver():
        answers.append(await inbox.store_event(event()))

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(deliver)

    [first] = [answer for answer in answers if isinstance(answer, Stored)]
    assert first.jobs == 1
    assert [answer for answer in answers if answer != first] == [Duplicate(first.event_id)] * 49
    assert await counts(pool) == (1, 1, 1)


async def test_a_duplicate_of_an_event_that_is_being_committed_waits_and_is_one(inbox, pool, dsn):
    other = await asyncpg.connect(dsn)
    await other.execute(
        "begin; insert into reliq.event_keys values ('demo', 'k', 77, reliq.now() + '1 day')"
    )
    answers = []

    async def deliver():
        answers.append(await inbox.store_event(event()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deliver)
        await until_somebody_waits_for_a_lock(pool)
        await other.execute("commit")
    await other.close()

    assert answers == [Duplicate(77)]
    assert await counts(pool) == (0, 0, 1)


async def test_the_same_key_of_another_source_is_another_event(inbox, pool):
    await inbox.store_event(event())

    assert isinstance(await inbox.store_event(event(source="other")), Stored)


async def test_an_event_without_a_key_is_always_kept(inbox, pool):
    answers = [await inbox.store_event(event(dedup_key=None)) for _ in range(3)]

    assert len({answer.event_id for answer in answers}) == 3
    assert await counts(pool) == (3, 3, 0)


@pytest.mark.parametrize(
    "body", [b"", b"\0", b"\xff\xfe not utf-8", bytes(range(256)) * 4096], ids=len
)
async def test_a_body_is_stored_byte_for_byte_whatever_it_holds(inbox, pool, body):
    answer = await inbox.store_event(event(body=body))

    assert await pool.fetchval("select body from reliq.events where id = $1", answer.event_id) == (
        body
    )


async def test_what_could_not_be_read_is_stored_with_the_reason_and_no_jobs(inbox, pool):
    answer = await inbox.store_event(event(jobs=[], parse_error="ValueError: \0 no \ud800 JSON"))

    assert answer == Stored(answer.event_id, 0)
    [row] = await pool.fetch("select body, parse_error from reliq.events")
    assert tuple(row) == (b"{}", "ValueError: \ufffd no \ufffd JSON")
    assert await inbox.store_event(event()) == Duplicate(answer.event_id)


LONG = "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(200))
"""Longer than an index entry may be, also when Postgres has compressed it."""


@pytest.mark.parametrize("key", [LONG, "ю" * 2_000, "nul\0", "half \ud800", " ", "'"])
async def test_a_key_of_any_length_and_letters_makes_one_event(inbox, pool, key):
    first = await inbox.store_event(event(dedup_key=key))

    assert await inbox.store_event(event(dedup_key=key)) == Duplicate(first.event_id)
    assert isinstance(await inbox.store_event(event(dedup_key=f"{key}2")), Stored)


async def test_headers_that_postgres_could_not_store_are_made_storable(inbox, pool):
    await inbox.store_event(event(headers={"user-agent": "nul \0 half \ud800 café"}))

    assert await pool.fetchval("select headers->>'user-agent' from reliq.events") == (
        "nul \ufffd half \ufffd café"
    )


async def test_a_store_with_the_right_schema_is_ready(inbox):
    assert await inbox.why_not_ready() is None


async def test_a_store_says_what_its_schema_lacks(server):
    async with Database(dsn=server.dsn("postgres")).pool("reliq tests", 1) as pool:
        assert "run `reliq migrate`" in await inbox_on(pool).why_not_ready()


async def test_a_statement_that_waits_too_long_is_called_off_on_the_server_too(inbox, pool, dsn):
    other = await asyncpg.connect(dsn)
    await other.execute("begin; lock table reliq.events in access exclusive mode")

    async with unavailable_in_time():
        await inbox_on(pool, DEADLINE).store_event(event())

    # Else every repeated delivery would leave one more session waiting for the lock.
    with anyio.fail_after(5):
        while await waiting(pool):
            await anyio.sleep(0.01)
    await other.execute("rollback")
    await other.close()
    assert isinstance(await inbox.store_event(event()), Stored)


async def test_a_pool_without_a_free_connection_is_unavailable_in_time(dsn):
    async with Database(dsn=dsn).pool("reliq tests", 1) as pool:
        inbox, hurried = inbox_on(pool), inbox_on(pool, DEADLINE)
        async with pool.acquire():
            async with unavailable_in_time():
                await hurried.store_event(event())
            assert "not available" in await hurried.why_not_ready()

        assert isinstance(await inbox.store_event(event()), Stored)
        assert await inbox.why_not_ready() is None


async def test_a_session_that_the_server_ends_costs_at_most_one_delivery_a_repetition(dsn):
    other = await asyncpg.connect(dsn)
    async with Database(dsn=dsn).pool("reliq doomed", 1) as pool:
        inbox = inbox_on(pool)
        # Many times: how far the farewell has come is for the network to say.
        for _ in range(40):
            await inbox.store_event(event())
            assert await other.fetchval(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name = 'reliq doomed' and datname = current_database()"
            )
            with contextlib.suppress(StoreUnavailable):
                await inbox.store_event(event())
            assert isinstance(await stored_in_the_end(inbox), Duplicate)
    await other.close()


async def stored_in_the_end(inbox):
    with anyio.fail_after(5):
        while True:
            with contextlib.suppress(StoreUnavailable):
                return await inbox.store_event(event())
            await anyio.sleep(0.001)


@pytest.fixture(scope="module")
def own_server():
    """A server that these tests may do harm to."""
    with open_server(PROVIDER, image=IMAGE, parameters={"fsync": "off"}) as server:
        anyio.run(migrate, server.dsn())
        yield server


@pytest.mark.parametrize("size", [1, 5])
async def test_a_frozen_postgres_is_unavailable_in_time_and_works_again_after_the_thaw(
    own_server, size
):
    # asyncpg forgets a future where an attempt at TLS is cut off, which asyncio then complains of.
    dsn = f"{own_server.dsn()}?sslmode=disable"
    async with Database(dsn=dsn).pool("reliq tests", size) as pool:
        inbox, hurried = inbox_on(pool), inbox_on(pool, DEADLINE)
        for _ in range(size):
            await inbox.store_event(event(dedup_key=None))
        own_server.freeze()
        try:
            # Twice as many as there are connections, and again when those were dropped.
            for _ in range(2):
                async with anyio.create_task_group() as tasks:
                    for _ in range(2 * size):
                        tasks.start_soon(fails_in_time, hurried)
                    tasks.start_soon(is_not_ready_in_time, hurried)
            with anyio.fail_after(CALL_OFF_S + 2):
                while pool.get_size():
                    await anyio.sleep(0.01)
        finally:
            own_server.thaw()

        with anyio.fail_after(CALL_OFF_S + 5):
            while await hurried.why_not_ready() is not None:
                await anyio.sleep(0.01)
        for _ in range(2 * size):
            assert isinstance(await inbox.store_event(event(dedup_key=None)), Stored)
        # Every place in the pool is there to be had: none was lost with the frozen server.
        with anyio.fail_after(5):
            held = [await pool.acquire() for _ in range(size)]
        for connection in held:
            await pool.release(connection)


async def test_a_postgres_that_is_down_is_unavailable_at_once_and_works_again_when_it_is_up(
    own_server,
):
    async with Database(dsn=own_server.dsn()).pool("reliq tests", 2) as pool:
        inbox, hurried = inbox_on(pool), inbox_on(pool, DEADLINE)
        await inbox.store_event(event(dedup_key=None))
        own_server.stop()
        try:
            for _ in range(3):
                await fails_in_time(hurried)
            assert "not available" in await inbox.why_not_ready()
        finally:
            own_server.start()

        assert isinstance(await inbox.store_event(event(dedup_key=None)), Stored)


async def fails_in_time(inbox):
    async with unavailable_in_time():
        await inbox.store_event(event(dedup_key=None))


async def is_not_ready_in_time(inbox):
    with anyio.fail_after(DEADLINE.total_seconds() + SLACK_S):
        assert "not available" in await inbox.why_not_ready()


@asynccontextmanager
async def unavailable_in_time():
    started = anyio.current_time()
    with anyio.fail_after(30), pytest.raises(StoreUnavailable):
        yield
    assert anyio.current_time() - started < DEADLINE.total_seconds() + SLACK_S


async def waiting(pool):
    return await pool.fetchval(
        "select count(*) from pg_stat_activity "
        "where datname = current_database() and wait_event_type = 'Lock'"
    )


async def until_somebody_waits_for_a_lock(pool):
    with anyio.fail_after(5):
        while not await waiting(pool):
            await anyio.sleep(0.001)
