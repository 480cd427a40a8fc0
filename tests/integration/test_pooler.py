"""Everything but LISTEN through a real PgBouncer in transaction mode; skipped where there is none."""

import hmac
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import anyio
import asyncpg
import httpx
import pytest

from reliq import DuplicateOf, Inserted, NewJob, enqueue, enqueue_many, open_enqueuer
from reliq.automations.report import request
from reliq.domain.event import Duplicate, Stored
from reliq.domain.outcome import Requeue, Succeed
from reliq.domain.report import report_link
from reliq.ports import NewEvent
from reliq.postgres.enqueue import enqueue_job
from reliq.postgres.inbox import PostgresInbox
from reliq.postgres.pool import Database
from reliq.postgres.queue import PostgresQueue
from reliq.servers.loopback import free_port
from tests.fixtures.pooler import Pooler
from tests.fixtures.postgres import Clock, fetch_value
from tests.fixtures.processes import Command, Seen, StartCommand
from tests.fixtures.store import LEASE, OpenQueue

pytestmark = pytest.mark.anyio

CLIENTS = 8
"""At once, on a quarter as many connections to Postgres."""

KEY_TTL = timedelta(days=35)


@pytest.fixture
async def shared(pooled: Database) -> AsyncIterator[asyncpg.Pool]:
    """A pool whose every connection is a client of the pooler."""
    async with pooled.pool("reliq tests, pooled", CLIENTS) as pool:
        yield pool


async def at_once(call) -> list:
    """Call it CLIENTS times at once, with 0, 1, …; return what each answered."""
    answers = [None] * CLIENTS

    async def one(n: int) -> None:
        answers[n] = await call(n)

    async with anyio.create_task_group() as tasks:
        for n in range(CLIENTS):
            tasks.start_soon(one, n)
    return answers


async def test_two_connections_serve_all_clients(shared: asyncpg.Pool):
    pids = {pid for _ in range(3) for pid in await at_once(lambda _: backend(shared))}

    assert len(pids) == 2


async def backend(pool: asyncpg.Pool) -> int:
    return await pool.fetchval("select pg_backend_pid() from pg_sleep(0.01)")


async def test_events_are_stored_once(shared: asyncpg.Pool):
    inbox = PostgresInbox(
        pool=shared, grouped=None, deadline=timedelta(seconds=10), key_ttl=KEY_TTL
    )

    async def deliver(n: int) -> Stored | Duplicate:
        return await inbox.store_event(
            NewEvent(
                source="demo", dedup_key=f"k{n % 2}", headers={}, body=b"{}", parse_error=None,
                jobs=[NewJob(kind="job"), NewJob(kind="job", key=f"own:{n % 2}")],
            )
        )  # fmt: skip

    answers = await at_once(deliver)

    stored = [answer for answer in answers if isinstance(answer, Stored)]
    assert [answer.jobs for answer in stored] == [2, 2]
    assert {answer.event_id for answer in answers} == {answer.event_id for answer in stored}


async def test_jobs_are_enqueued_once_alone_and_many_in_the_callers_transaction(
    shared: asyncpg.Pool,
):
    async def ask(n: int) -> list:
        async with shared.acquire() as connection, connection.transaction():
            alone = [await enqueue(connection, "job"), await enqueue(connection, "job", key="k")]
            copied = await enqueue_many(connection, [NewJob(kind="job")] * 3)
            keyed = await enqueue_many(connection, [NewJob(kind="job", key=k) for k in "ab"])
        return [*alone, *copied, *keyed]

    answers = [answer for some in await at_once(ask) for answer in some]

    made = [answer.job_id for answer in answers if isinstance(answer, Inserted)]
    assert len(answers) == CLIENTS * 7
    assert len(made) == len(set(made)) == CLIENTS * 4 + 3
    assert {answer.job_id for answer in answers} == set(made)


async def test_a_pool_to_enqueue_from(pooled: Database):
    async with open_enqueuer(pooled.dsn, prepared=False, planner="role") as queue:
        first = await queue.enqueue("job", key="k")
        answers = await at_once(lambda _: queue.enqueue("job", key="k"))

    assert answers == [DuplicateOf(first.job_id)] * CLIENTS


async def test_workers_claim_renew_settle_and_reap(
    shared: asyncpg.Pool, open_queue: OpenQueue, clock: Clock
):
    async with shared.acquire() as connection:
        await enqueue_many(connection, [NewJob(kind="job")] * CLIENTS * 3)

    async def work(n: int) -> None:
        """Of three jobs write in one's transaction, put one back, and leave one."""
        queue = open_queue(f"w{n}", pool=shared, transactions=shared, effects=shared)
        written, back, left = await claim_three(queue)
        await queue.renew_leases([written.held, back.held, left.held])
        async with queue.transaction(written) as connection:
            await connection.fetchval("select pg_sleep(0.01)")
        again = Requeue(after=timedelta(0), ended="again", spends=False, error=None)
        assert not (await queue.settle_jobs([(back, again)])).lost

    await at_once(work)
    await clock.forward(LEASE.total_seconds() + 1)
    queue = open_queue("last", pool=shared, transactions=shared, effects=shared)
    reaped = await queue.reap_jobs()
    await clock.forward(3600)
    claims = await queue.claim_jobs(1000)
    settled = await queue.settle_jobs([(claim, Succeed()) for claim in claims])

    assert len(reaped) == CLIENTS
    assert len(claims) == CLIENTS * 2
    assert not settled.lost
    states = "select array_agg(distinct state) from reliq.jobs"
    assert await shared.fetchval(states) == ["succeeded"]


async def claim_three(queue: PostgresQueue) -> list:
    """Take three at a time, which others may be about to take."""
    claims: list = []
    with anyio.fail_after(30):
        while len(claims) < 3:
            claims += await queue.claim_jobs(3 - len(claims))
    return claims


# The commands, as they are shipped ---------------------------------------------------------------


@pytest.fixture
def behind(start: StartCommand, pooled: Database):
    """Start `reliq …` behind the pooler, as README.md says."""

    def run(*arguments: str, **settings: str) -> Command:
        return start(*arguments, dsn=pooled.dsn, prepared="off", planner="role", **settings)

    return run


@pytest.mark.parametrize("direct", [True, False])
async def test_a_worker_works_and_listens_only_at_postgres_itself(
    behind, pooler: Pooler, pool: asyncpg.Pool, seen: Seen, dsn: str, direct
):
    worker = behind("worker", **({"listen_url": dsn} if direct else {}))
    await worker.logged("worker.started")
    for kind in ("quick", "plain", "writing"):
        await enqueue(pool, kind, {})
    await enqueue(pool, "outcome", {"say": "again", "times": 2})
    await seen.at_rest()
    await pool.execute("notify reliq_wake")
    here = await fetch_value(
        dsn,
        "select count(*) from pg_stat_activity"
        " where application_name = 'reliq listen' and datname = current_database()",
    )

    ended = "select array_agg(distinct state || ' at attempt ' || attempt) from reliq.jobs"
    assert await pool.fetchval(ended) == ["succeeded at attempt 1"], worker.log
    assert here == direct
    assert "packet 'A'" not in pooler.log  # a notification for somebody who is not there


async def test_a_receiver_stores_each_delivery_once(behind, pool: asyncpg.Pool):
    port, secret = free_port(), "s" * 32
    server = behind(
        "serve", port=str(port), app="reliq.automations.drill:app", secrets__drill=secret,
        store_deadline="10s",
    )  # fmt: skip
    await server.logged("receiver.started")
    url = f"http://127.0.0.1:{port}/hooks/drill"
    async with httpx.AsyncClient(timeout=20) as client:

        async def deliver(n: int) -> int:
            event = {"id": f"evt-{n % 2}", "jobs": [{"kind": "drill.noop", "payload": {}}] * 2}
            body = json.dumps(event).encode()
            proof = hmac.digest(secret.encode(), body, "sha256").hex()
            answer = await client.post(url, content=body, headers={"x-signature": proof})
            return answer.status_code

        assert await at_once(deliver) == [202] * CLIENTS, server.log
    assert await pool.fetchval("select count(*) from reliq.events") == 2
    assert await pool.fetchval("select count(*) from reliq.jobs") == 4


@pytest.mark.parametrize("command", ["migrate", "doctor", "prune"])
async def test_a_command_works_again_and_again(behind, command: str):
    for _ in range(3):
        run = behind(command)
        assert await run.exit_code() == 0, run.log


async def test_reports_are_made_and_handed_out(behind, pool: asyncpg.Pool):
    """Their rows come by cursors, of which two workers have several at once on two connections."""
    # While chunks hold both connections, nobody's lease is renewed.
    settings, port = {"app": "tests.fixtures.report_app:app", "lease": "60s"}, free_port()
    workers = [behind("worker", **settings) for _ in range(2)]
    receiver = behind("serve", port=str(port), report_secret="correct horse", **settings)
    await receiver.logged("receiver.started")
    wish = request("numbers", {"rows": 20_000, "chunks": 20})
    numbers = [(await enqueue_job(pool, wish)).job_id for _ in range(3)]
    ready = "select count(*) from reliq.reports where state = 'ready'"
    with anyio.fail_after(60):
        while await pool.fetchval(ready) < len(numbers):
            await anyio.sleep(0.02)

    expires = datetime.now(UTC) + timedelta(hours=1)  # noqa: TID251 - as whoever makes a link
    async with httpx.AsyncClient() as http:
        for number in numbers:
            link = report_link(f"http://127.0.0.1:{port}", b"correct horse", number, expires)
            lines = (await http.get(link)).text.splitlines()
            assert [line.split(",")[0] for line in lines[1:]] == list(map(str, range(1, 20_001)))
    wrong = await pool.fetch(
        "select kind, ended, error, count(*) from reliq.attempts group by 1, 2, 3"
    )
    assert [tuple(row) for row in wrong] == []
    assert "error" not in "".join(worker.log for worker in workers)
