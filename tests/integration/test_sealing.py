"""Secret fields in the tables: sealed by every way in, opened for handlers, rekeyed under way."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from functools import partial

import anyio
import asyncpg
import psycopg
import pytest
import sqlalchemy
from cryptography.fernet import Fernet
from sqlalchemy.ext.asyncio import create_async_engine

from reliq import NewJob, enqueue, enqueue_many, open_enqueuer
from reliq.domain.family import Family
from reliq.enqueue_with import psycopg as with_psycopg
from reliq.enqueue_with import sqlalchemy as with_sqlalchemy
from reliq.ports import NewEvent
from reliq.postgres.desk import Desk
from reliq.postgres.enqueue import enqueue_statement
from reliq.postgres.inbox import PostgresInbox
from reliq.postgres.queries import query
from reliq.postgres.rekey import Rekeyed, rekey
from reliq.sealing import Sealing
from tests.fixtures.processes import Seen, StartCommand
from tests.fixtures.store import buried

pytestmark = pytest.mark.anyio

OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
FIELDS = {"iban"}
OF_OLD, OF_BOTH, OF_NEW = (
    Sealing(keys, FIELDS) for keys in (f"2026a:{OLD}", f"2026b:{NEW},2026a:{OLD}", f"2026b:{NEW}")
)
IBAN = "DE89370400440532013000"
PAYLOAD = {"n": 1, "payer": {"iban": IBAN}}
JOB = NewJob(kind="job", payload=PAYLOAD)
KEYED = replace(JOB, key="k", group_key="g")


async def stored(pool: asyncpg.Pool) -> list[str]:
    """Every payload that is in a table, as text."""
    rows = await pool.fetch(
        "select payload::text as text from reliq.jobs union all select then_payload::text from reliq.parents"
    )
    return [row["text"] for row in rows]


async def through_asyncpg(pool, dsn):
    await enqueue(pool, "job", PAYLOAD, sealing=OF_OLD)
    await enqueue(pool, "job", PAYLOAD, key="k", sealing=OF_OLD)


async def through_many(pool, dsn):
    async with pool.acquire() as connection:
        await enqueue_many(connection, [JOB], sealing=OF_OLD)
        await enqueue_many(connection, [KEYED], sealing=OF_OLD)


async def through_an_enqueuer(pool, dsn):
    async with open_enqueuer(dsn, sealing=OF_OLD) as enqueuer:
        await enqueuer.enqueue("job", PAYLOAD)
        await enqueuer.enqueue_many([JOB])


async def through_psycopg(pool, dsn):
    def sync() -> None:
        with psycopg.connect(dsn) as connection:
            with_psycopg.enqueue(connection, JOB, sealing=OF_OLD)

    await anyio.to_thread.run_sync(sync)
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await with_psycopg.enqueue_async(connection, JOB, sealing=OF_OLD)


async def through_sqlalchemy(pool, dsn):
    address = dsn.replace("postgresql://", "postgresql+psycopg://")

    def sync() -> None:
        engine = sqlalchemy.create_engine(address)
        with engine.begin() as connection:
            with_sqlalchemy.enqueue(connection, JOB, sealing=OF_OLD)
        engine.dispose()

    await anyio.to_thread.run_sync(sync)
    engine = create_async_engine(address)
    async with engine.begin() as connection:
        await with_sqlalchemy.enqueue_async(connection, JOB, sealing=OF_OLD)
    await engine.dispose()


async def through_a_statement(pool, dsn):
    """What Django's door sends, too; that one needs a process of its own."""
    statement, parameters = enqueue_statement(JOB, "pyformat", sealing=OF_OLD)
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute(statement, parameters)


async def through_the_receiver_and_a_replay(pool, dsn):
    inbox = PostgresInbox(
        pool=pool, grouped=pool, deadline=timedelta(seconds=10), key_ttl=timedelta(days=35),
        sealing=OF_OLD,
    )  # fmt: skip
    event = NewEvent(
        source="shop", dedup_key=None, headers={}, body=b"{}", parse_error=None, jobs=[JOB, KEYED]
    )
    answer = await inbox.store_event(event)
    desk = Desk(pool)
    delivery = await desk.delivery(answer.event_id, age_max=None)
    await desk.replay_event(
        delivery, answer.event_id, dedup_key=None, jobs=[JOB], key_ttl=timedelta(days=35),
        force=True, sealing=OF_OLD,
    )  # fmt: skip


async def through_a_family_and_a_slot(pool, dsn, open_queue):
    queue = open_queue(sealing=OF_OLD)
    await queue.enqueue_job(replace(JOB, key="slot"))
    [claim] = await queue.claim_jobs(1)
    async with queue.transaction(claim) as tx:
        await queue.fan_out(tx, claim.job_id, Family(children=[JOB, JOB], then=JOB))


WAYS = [through_asyncpg, through_many, through_an_enqueuer, through_psycopg, through_sqlalchemy,
        through_a_statement, through_the_receiver_and_a_replay, through_a_family_and_a_slot]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_no_way_in_stores_a_secret_in_clear(pool, dsn, open_queue, way):
    takes_queue = way is through_a_family_and_a_slot
    await (partial(way, open_queue=open_queue) if takes_queue else way)(pool, dsn)

    texts = await stored(pool)
    assert len(texts) >= 1
    assert [text for text in texts if IBAN in text or "2026a:" not in text] == []
    assert {json.dumps(json.loads(OF_OLD.open(text))) for text in texts} == {json.dumps(PAYLOAD)}


async def test_django_seals_as_well(dsn, pool):
    code = f"""
from urllib.parse import urlsplit
import django
from django.conf import settings
at = urlsplit({dsn!r})
settings.configure(DATABASES={{"default": {{"ENGINE": "django.db.backends.postgresql",
    "NAME": at.path[1:], "USER": at.username, "PASSWORD": at.password, "HOST": at.hostname,
    "PORT": at.port}}}})
django.setup()
from reliq import NewJob, Sealing
from reliq.enqueue_with import django as door
door.enqueue(NewJob(kind="job", payload={PAYLOAD!r}), sealing=Sealing("2026a:{OLD}", {{"iban"}}))
"""
    run = partial(subprocess.run, [sys.executable, "-c", code], check=True, timeout=60)
    await anyio.to_thread.run_sync(run)
    [text] = await stored(pool)
    assert IBAN not in text
    assert json.loads(OF_OLD.open(text)) == PAYLOAD


# -- handlers -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["leaky", "isolated.leaky"])
async def test_a_handler_sees_what_was_sealed_and_its_errors_do_not_tell(
    pool, seen: Seen, start: StartCommand, kind
):
    made = await enqueue(pool, kind, {"iban": IBAN}, sealing=OF_OLD)
    worker = start("worker", retry_attempts="1", encryption_keys=OF_BOTH.keys)

    await seen.at_rest()
    job = await seen.job(made.job_id)
    assert job["last_error"] == "ValueError: no account ******** at the bank"
    assert IBAN not in worker.log
    assert IBAN not in job["payload"]


@pytest.mark.parametrize("keys", ["", OF_NEW.keys, f"2026a:{NEW}"], ids=["none", "other", "wrong"])
async def test_a_job_whose_key_is_missing_does_not_run_and_runs_when_it_is_back(
    pool, seen: Seen, start: StartCommand, keys
):
    made = await enqueue(pool, "quick", {"iban": IBAN}, sealing=OF_OLD)
    worker = start("worker", retry_attempts="2", encryption_keys=keys)
    await seen.at_rest()

    job = await seen.job(made.job_id)
    assert (job["state"], job["dead_reason"], job["attempt"]) == ("dead", "attempts", 2)
    assert f"job {made.job_id} did not run" in job["last_error"]
    assert ("2026a" in job["last_error"]) == bool(keys)
    assert await seen.notes() == []
    worker.process.terminate()
    await worker.exit_code()

    start("worker", encryption_keys=OF_BOTH.keys)
    desk = Desk(pool)
    anew, _ = await desk.requeue_job(made.job_id, by="ada", reason="", even_ignored=False)
    await seen.wait_for("ran")
    await seen.at_rest()
    assert (await seen.job(anew))["state"] == "succeeded"


# -- rekey ----------------------------------------------------------------------------------


async def test_payloads_of_every_state_and_of_families_are_sealed_anew(pool, open_queue):
    queue = open_queue(sealing=OF_OLD)
    async with pool.acquire() as connection:
        await enqueue_many(connection, [JOB] * 2_500, sealing=OF_OLD)
    [parent, dead, _, done] = await queue.claim_jobs(4)
    async with queue.transaction(parent) as tx:
        await queue.fan_out(tx, parent.job_id, Family(children=[JOB], then=JOB))
    await queue.settle_jobs([(dead, buried())])
    async with queue.transaction(done):
        pass
    await enqueue(pool, "job", PAYLOAD)  # as the SQL function leaves it: in clear
    await enqueue(pool, "job", {"n": 2, "payer": {"iban": None}, "text": '"iban": "x"'})

    counted = await rekey(pool, OF_BOTH, only_count=True)
    assert counted == Rekeyed(sealed=0, left=2_503, lost={})
    assert await rekey(pool, OF_BOTH) == Rekeyed(sealed=2_503, left=0, lost={})

    texts = await stored(pool)
    assert [text for text in texts if "2026a:" in text or IBAN in text] == []
    assert {OF_NEW.open(text) for text in texts if "2026b" in text} == {json.dumps(PAYLOAD)}
    assert await rekey(pool, OF_BOTH) == Rekeyed(sealed=0, left=0, lost={})


async def test_what_cannot_be_opened_is_left_and_told_of(pool):
    await enqueue(pool, "job", PAYLOAD, sealing=OF_OLD)
    await enqueue(pool, "job", PAYLOAD)

    done = await rekey(pool, OF_NEW)

    why = "iban is sealed with key '2026a', which is not among the keys here"
    assert done == Rekeyed(sealed=1, left=0, lost={why: 1})
    assert sorted("2026a:" in text for text in await stored(pool)) == [False, True]


async def test_a_payload_that_is_too_deep_is_left_and_told_of_and_stops_no_other(pool):
    made = [await enqueue(pool, "job", PAYLOAD) for _ in range(3)]
    deep = '{"iban": "x", "n": ' + "[" * 2_000 + "]" * 2_000 + "}"
    await pool.execute("update reliq.jobs set payload = $2 where id = $1", made[1].job_id, deep)

    done = await rekey(pool, OF_NEW)

    [why] = done.lost
    assert "nested at most 400 deep, not 2001" in why
    assert done == Rekeyed(sealed=2, left=0, lost={why: 1})


async def test_a_row_that_somebody_holds_is_left_for_the_next_time(pool):
    held = await enqueue(pool, "job", PAYLOAD, sealing=OF_OLD)
    await enqueue(pool, "job", PAYLOAD, sealing=OF_OLD)

    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("select from reliq.jobs where id = $1 for update", held.job_id)
        with anyio.fail_after(10):
            assert await rekey(pool, OF_BOTH) == Rekeyed(sealed=1, left=1, lost={})
    assert await rekey(pool, OF_BOTH) == Rekeyed(sealed=1, left=0, lost={})


class Older:
    """A pool that is slow to write: a newer rekey ends between its reading and its writing."""

    def __init__(self, pool: asyncpg.Pool, newer: Sealing) -> None:
        self.pool, self.newer = pool, newer

    async def fetch(self, text: str, *arguments: object) -> list[asyncpg.Record]:
        if text == query("rekey_payloads").text and len(await rest(self.pool, "2026c:")) == 0:
            assert (await rekey(self.pool, self.newer)).left == 0
        rows: list[asyncpg.Record] = await self.pool.fetch(text, *arguments)
        return rows


async def rest(pool: asyncpg.Pool, key: str) -> list[str]:
    return [text for text in await stored(pool) if key in text]


async def test_an_older_rekey_writes_over_nothing_that_a_newer_one_sealed(pool, open_queue):
    queue = open_queue(sealing=OF_OLD)
    await enqueue(pool, "job", PAYLOAD, sealing=OF_OLD)
    [parent] = await queue.claim_jobs(1)
    async with queue.transaction(parent) as tx:
        await queue.fan_out(tx, parent.job_id, Family(children=[JOB], then=JOB))
    newer = Sealing(f"2026c:{Fernet.generate_key().decode()},{OF_BOTH.keys}", FIELDS)

    done = await rekey(Older(pool, newer), OF_BOTH)  # type: ignore[arg-type] - it fetches, as a pool

    assert len(await rest(pool, "2026c:")) == len(await stored(pool)) == 3
    why = "iban is sealed with key '2026c', which is not among the keys here"
    assert done == Rekeyed(sealed=0, left=0, lost={why: 3})


@pytest.mark.parametrize("many", [False, True])
async def test_a_copy_of_a_dead_letter_that_is_being_made_is_not_missed(pool, open_queue, many):
    queue = open_queue()
    made = await enqueue(pool, "job", PAYLOAD, sealing=OF_OLD)
    [claim] = await queue.claim_jobs(1)
    await queue.settle_jobs([(claim, buried())])
    async with pool.acquire() as connection:
        requeue = connection.transaction()
        await requeue.start()
        desk = Desk(connection)  # type: ignore[arg-type] - it fetches, as a pool does
        if many:
            await desk.requeue_jobs(
                [made.job_id], by="a", reason="", apart=timedelta(0), even_ignored=False
            )
        else:
            await desk.requeue_job(made.job_id, by="a", reason="", even_ignored=False)
        with anyio.fail_after(10):
            assert await rekey(pool, OF_BOTH) == Rekeyed(sealed=0, left=1, lost={})
        await requeue.commit()

    assert await rekey(pool, OF_BOTH) == Rekeyed(sealed=2, left=0, lost={})


async def test_keys_change_while_a_worker_runs_and_then_the_old_one_can_go(
    pool, seen: Seen, start: StartCommand
):
    async with pool.acquire() as connection:
        jobs = [NewJob(kind="quick", payload=PAYLOAD)] * 300
        later = [replace(job, run_in=timedelta(hours=1)) for job in jobs]
        await enqueue_many(connection, [*jobs, *later], sealing=OF_OLD)
    worker = start("worker", encryption_keys=OF_BOTH.keys, concurrency="20")
    await seen.wait_for("ran", 20)

    done = await rekey(pool, OF_BOTH)

    assert (done.left, done.lost) == (0, {})
    assert [text for text in await stored(pool) if "2026a:" in text] == []
    await seen.wait_for("ran", 300)
    worker.process.terminate()
    await worker.exit_code()
    await pool.execute("update reliq.jobs set run_at = reliq.now() where state = 'queued'")
    start("worker", encryption_keys=OF_NEW.keys)
    await seen.wait_for("ran", 600)
    await seen.at_rest()
    failed = "select count(*) from reliq.attempts where ended = 'failed'"
    assert await pool.fetchval(failed) == 0  # what cannot be opened is a failed attempt
