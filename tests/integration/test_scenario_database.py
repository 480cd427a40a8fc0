"""The write-ahead log as a witness: what the product really commits, in the words of the history."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from secrets import token_hex

import anyio
import asyncpg
import pytest

from reliq.domain.job import Kind, NewJob, WorkerName
from reliq.domain.outcome import Requeue, Succeed
from reliq.postgres.enqueue import enqueue_job
from reliq.postgres.migrate import migrate
from reliq.postgres.pool import Database as Product
from reliq.postgres.queue import PostgresQueue
from reliq.scenario.history import Entry
from reliq.scenario.rig import PARAMETERS
from reliq.scenario.stage.database import Database, connect, open_database, prepare_template
from reliq.servers import PostgresServer, open_server
from tests.fixtures.postgres import IMAGE, PROVIDER, ask
from tests.fixtures.store import LEASE, buried, failed

pytestmark = pytest.mark.anyio

NASTY = "it's \"so\"\n new-tuple: id[bigint]:7 — ünïcode ✓ \\ {x} 'quoted''"


@pytest.fixture(scope="module")
def witnessed() -> Iterator[PostgresServer]:
    """A server that keeps a logical log, with a template as the runs have it; tests may crash it."""
    with open_server(PROVIDER, image=IMAGE, parameters=PARAMETERS) as server:
        ask(server.dsn("postgres"), "create database witnessed")
        anyio.run(migrate, server.dsn("witnessed"))
        anyio.run(prepare_template, server.dsn("witnessed"))
        yield server


@pytest.fixture
async def database(witnessed: PostgresServer) -> AsyncIterator[Database]:
    async with opened(witnessed) as database:
        yield database


@asynccontextmanager
async def opened(server: PostgresServer, *, moves_clock: bool = False) -> AsyncIterator[Database]:
    async with open_database(
        server.dsn("postgres"), "witnessed", server.dsn, moves_clock=moves_clock
    ) as database:
        yield database


@asynccontextmanager
async def worker(database: Database, name: str = "worker-1") -> AsyncIterator[PostgresQueue]:
    """The product's own store, as the process `name`."""
    async with Product(dsn=database.dsn_of(name)).pool("reliq tests", 4) as pool:
        yield PostgresQueue(
            pool=pool, transactions=pool, effects=pool, worker=WorkerName(name), lease=LEASE, deadline=timedelta(seconds=10),
            attempts_max={Kind("job"): 8}, alerts=False, alert_window=timedelta(hours=1),
            key_ttl=timedelta(days=1),
        )  # fmt: skip


async def enqueue(queue: PostgresQueue, payload: dict | None = None, key: str | None = None) -> int:
    made = await enqueue_job(
        queue.pool, NewJob(kind=Kind("job"), payload=payload or {}, key=key), timedelta(days=1)
    )
    return int(made.job_id)


async def said(database: Database) -> list[Entry]:
    """Read what is new, but for the statements."""
    return [x for x in await database.committed() if x.e != "statement"]


def words(entries: list[Entry]) -> list[str]:
    return [x.e for x in entries]


# Words ----------------------------------------------------------------------------------------


async def test_the_life_of_a_job_in_the_order_of_its_commits(database):
    async with worker(database) as queue:
        job = await enqueue(queue, key="k")
        [claim] = await queue.claim_jobs(1)
        await queue.renew_leases([claim.held])
        await queue.settle_jobs([(claim, failed())])
        [claim] = await queue.claim_jobs(1)
        await queue.settle_jobs([(claim, Succeed())])

    made, claimed, renewed, broke, again, done = await said(database)

    assert words([made, claimed, renewed, broke, again, done]) == [
        "job", "claim", "renew", "failed", "claim", "succeeded",
    ]  # fmt: skip
    assert {x.a["job"] for x in (made, claimed, renewed, broke, again, done)} == {job}
    assert (made.a["kind"], made.a["key"], made.a["event"]) == ("job", "k", None)
    assert (claimed.a["attempt"], claimed.a["fence"], claimed.a["worker"]) == (1, 1, "worker-1")
    assert renewed.a["was"] == claimed.a["lease_until"] <= renewed.a["lease_until"]
    assert (broke.a["ended"], broke.a["attempt"], broke.a["error"]) == ("failed", 1, "it broke")
    assert (again.a["attempt"], again.a["fence"], done.a["fence"]) == (2, 2, 2)
    assert made.t <= claimed.t <= renewed.t <= broke.t <= again.t <= done.t


async def test_a_lease_is_as_long_as_it_was_granted(database):
    async with worker(database) as queue:
        await enqueue(queue)
        await queue.claim_jobs(1)

    _, claim = await said(database)

    assert claim.a["lease_until"] - claim.a["db"] == LEASE / timedelta(microseconds=1)


async def test_how_a_claim_may_end_and_that_a_job_died_of_it(database):
    back = Requeue(after=timedelta(0), ended="handed_back", spends=False)
    later = Requeue(after=timedelta(hours=1), ended="again", spends=False)
    async with worker(database) as queue:
        for _ in range(3):
            await enqueue(queue)
        claims = await queue.claim_jobs(3)
        await queue.settle_jobs([(claims[0], back)])
        await queue.settle_jobs([(claims[1], later)])
        await queue.settle_jobs([(claims[2], buried())])

    release, again, broke, dead = (await said(database))[-4:]

    assert words([release, again, broke, dead]) == ["release", "again", "failed", "dead"]
    assert (release.a["attempt"], release.a["fence"]) == (1, 1)
    assert again.a["run_at"] - again.a["db"] == timedelta(hours=1) / timedelta(microseconds=1)
    assert (broke.a["run_at"], broke.a["status"]) == (None, 400)
    assert (dead.a["reason"], dead.a["error"], dead.a["xid"]) == (
        "permanent", "it broke for good", broke.a["xid"],
    )  # fmt: skip


async def test_a_lost_lease_is_told_by_who_took_it_and_names_who_lost_it(witnessed):
    async with (
        opened(witnessed, moves_clock=True) as database,
        worker(database) as lost,
        worker(database, "worker-2#3") as reaper,
    ):
        await enqueue(lost)
        await lost.claim_jobs(1)
        await database.ask("update drill.clock set shift = interval '1 h'")
        await reaper.reap_jobs()

        taken = (await said(database))[-1]

    assert (taken.e, taken.p, taken.a["worker"]) == ("lease-lost", "worker-2#3", "worker-1")
    assert taken.a["db"] > taken.a["lease_until"]


async def test_a_jobs_row_that_is_deleted_is_gone(database):
    async with worker(database) as queue:
        job = await enqueue(queue)
    await database.ask("delete from reliq.jobs returning 1")

    gone = (await said(database))[-1]

    assert (gone.e, gone.a["job"], gone.a["state"], gone.p) == ("gone", job, "queued", "")


# Who ------------------------------------------------------------------------------------------


async def test_every_statement_is_told_by_its_process_its_name_and_its_rows(database):
    async with worker(database) as one, worker(database, "worker-2") as two:
        await enqueue(one)
        await enqueue(one)
        await one.claim_jobs(5)
        await two.claim_jobs(5)

    told = [
        (x.p, x.a["stmt"], x.a["table"], x.a["op"], x.a["rows"])
        for x in await database.committed()
        if x.e == "statement"
    ]

    assert told == [
        ("worker-1", "insert_job", "jobs", "insert", 1),
        ("worker-1", "insert_job", "jobs", "insert", 1),
        ("worker-1", "claim_jobs", "jobs", "update", 2),
    ]


async def test_an_effect_is_of_the_transaction_that_settles(database):
    async with worker(database) as queue:
        await enqueue(queue, key="k")
        [claim] = await queue.claim_jobs(1)
        async with queue.transaction(claim) as transaction:
            await transaction.execute(
                "insert into drill.effects values ($1, $2, $3)", claim.job_id, claim.key, 1
            )

    effect, done = (await said(database))[-2:]

    assert (effect.e, effect.a["key"], effect.a["stmt"]) == ("effect", "k", "")
    assert (done.e, done.a["stmt"], done.a["xid"]) == (
        "succeeded",
        "settle_succeeded",
        effect.a["xid"],
    )


async def test_what_was_rolled_back_is_not_there(database):
    async with worker(database) as queue:
        await enqueue(queue)
        [claim] = await queue.claim_jobs(1)
        with pytest.raises(ValueError, match="no"):
            async with queue.transaction(claim) as transaction:
                await transaction.execute("insert into drill.effects values (1, 'k', 1)")
                raise ValueError("no")

    assert words(await said(database)) == ["job", "claim"]


# Values ---------------------------------------------------------------------------------------


async def test_texts_come_through_whatever_is_in_them(database):
    async with worker(database) as queue:
        await enqueue(queue, {"text": NASTY}, key=NASTY)
        [claim] = await queue.claim_jobs(1)
        await queue.settle_jobs([(claim, failed(error=NASTY))])
        await queue.claim_jobs(1)

    made, claimed, broke, again = await said(database)

    assert (made.a["key"], broke.a["error"]) == (NASTY, NASTY)
    assert (claimed.e, again.e, again.a["attempt"]) == ("claim", "claim", 2)


async def test_a_large_payload_that_nobody_touched_is_no_change(database):
    large = token_hex(200_000)  # which does not compress away
    async with worker(database) as queue:
        await enqueue(queue, {"text": large})
        [claim] = await queue.claim_jobs(1)
        await queue.renew_leases([claim.held])
        await database.ask("update reliq.jobs set worker = 'x' returning 1")

    *_, renewed, written = await said(database)

    assert renewed.e == "renew"
    assert (written.e, written.a["columns"]) == ("write", ["worker"])
    assert await database.ask("select pg_column_size(payload) from reliq.jobs") > 100_000


async def test_what_is_null_is_null(database):
    await database.ask(
        "insert into reliq.events (source, headers) values ('drill', '{}') returning 1"
    )

    [event] = await said(database)

    assert (event.a["source"], event.a["key"], event.p) == ("drill", None, "")


# Reading --------------------------------------------------------------------------------------


async def test_each_reading_tells_what_is_new(database):
    async with worker(database) as queue:
        await enqueue(queue)
        assert words(await said(database)) == ["job"]
        await queue.claim_jobs(1)
        assert words(await said(database)) == ["claim"]

    assert await said(database) == []


async def test_what_a_lost_connection_took_with_it_is_read_again(database, monkeypatch):
    async with worker(database) as queue:
        await enqueue(queue)
    fetch, losses = asyncpg.Connection.fetch, iter([True, True])

    async def lossy(self, statement, *values):
        rows = await fetch(self, statement, *values)
        if next(losses, False):
            raise asyncpg.ConnectionDoesNotExistError("the answer was on its way")
        return rows

    monkeypatch.setattr(asyncpg.Connection, "fetch", lossy)

    assert words(await said(database)) == ["job"]
    assert await said(database) == []


@pytest.mark.parametrize("how", ["crash", "stop"])
async def test_what_was_read_before_the_server_went_is_not_told_twice(witnessed, how):
    async with opened(witnessed) as database:
        async with worker(database) as queue:
            job = await enqueue(queue)
            before = await said(database)
            await queue.claim_jobs(1)

        await anyio.to_thread.run_sync(getattr(witnessed, how))
        await anyio.to_thread.run_sync(witnessed.start)
        async with worker(database, "worker-2") as queue:
            await enqueue(queue)
        after = await said(database)

    assert words(before) == ["job"]
    assert [(x.e, x.p) for x in after] == [("claim", "worker-1"), ("job", "worker-2")]
    assert after[0].a["job"] == job
    assert before[0].t <= after[0].t <= after[1].t


async def test_moments_lie_between_those_at_which_they_were_asked_for(database):
    began = anyio.current_time()
    async with worker(database) as queue:
        await enqueue(queue)
    ended = anyio.current_time()

    [made] = await said(database)

    slack_s = database.clock.error / 1e9
    assert began - slack_s <= made.t / 1e9 <= ended + slack_s


# Rest -----------------------------------------------------------------------------------------


async def test_nothing_is_held_still_while_a_job_is_open(database):
    async with worker(database) as queue:
        await enqueue(queue)
        assert not await database.hold_still()
        [claim] = await queue.claim_jobs(1)
        assert not await database.hold_still()
        await queue.settle_jobs([(claim, Succeed())])

    assert await database.hold_still()


async def test_once_it_is_held_still_no_job_is_made_and_all_can_be_read(database):
    async with worker(database) as queue:
        assert await database.hold_still()
        with anyio.move_on_after(0.2) as scope:
            await enqueue(queue)

        assert scope.cancelled_caught
        assert await said(database) == []
        assert await database.count_open() == 0


async def test_who_waits_for_a_writer_gives_up_and_may_ask_again(database):
    writer = await connect(database.dsn)
    try:
        await writer.execute("begin; lock table reliq.jobs in row exclusive mode")
        assert not await database.hold_still()
        await writer.execute("rollback")
        assert await database.hold_still()
    finally:
        writer.terminate()
