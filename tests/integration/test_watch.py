"""The watch and its alerts: a real Postgres, real workers, and channels that are real services."""

import json
import string
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import anyio
import asyncpg
import httpx
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from reliq.app import Handler
from reliq.automations import watch
from reliq.automations.outgoing import Outgoing
from reliq.domain.outcome import fingerprint
from reliq.domain.slots import Schedule
from reliq.domain.when import Every
from reliq.errors import LeaseLost
from reliq.job import Job
from reliq.postgres.enqueue import enqueue
from reliq.postgres.pool import Database
from reliq.postgres.queue import PostgresQueue
from reliq.settings import Settings
from tests.fixtures.channel import Channel, open_channel
from tests.fixtures.postgres import Clock
from tests.fixtures.processes import StartCommand, until
from tests.fixtures.store import OpenQueue, buried

pytestmark = pytest.mark.anyio

DIED = """
    with dead as (
      insert into reliq.jobs (kind, key, state, ready, attempt, fence, finished_at, dead_reason)
      select $1, 'k', 'dead', false, 1, 1, reliq.now(), 'permanent' from generate_series(1, 3)
      returning id
    )
    insert into reliq.attempts
      (job_id, fence, attempt, kind, ended, buried, error, fingerprint, worker, ended_at)
    select id, 1, 1, $1, 'failed', true, 'no such account', $2 || id % $3, 'w',
           reliq.now() - interval '1 minute' from dead
"""
LOST = """
    with lost as (
      insert into reliq.jobs (kind, key, run_at)
      select 'job', 'k', reliq.now() + interval '1 day' from generate_series(1, 3) returning id
    )
    insert into reliq.attempts (job_id, fence, attempt, kind, ended, worker)
    select id, 1, 1, 'job', 'lease_lost', 'w' from lost
"""
LATE = "insert into reliq.jobs (kind, key, queue, run_at) select 'job', 'k', 'mail', reliq.now() - $1::interval"
STUCK = """
    insert into reliq.jobs (kind, key, state, ready, attempt, fence, lease_until, reap_at)
    select 'job', 'k', 'running', false, 1, 1, at, at
    from (select reliq.now() - interval '11 minutes') as t (at)
"""
HOURLY = Schedule(kind="report", when=Every(minutes=60))


@pytest.fixture
def channel() -> Iterator[Channel]:
    with open_channel() as channel:
        yield channel


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as http:
        yield http


def handler(*schedules: Schedule, ping: Outgoing | None = None, **bounds: Any) -> Handler:
    told = {
        "database_url": "postgresql://nowhere/none", "watch_dead": 3, "watch_same_error": 3,
        "watch_lost_leases": 3,
    }  # fmt: skip
    return watch.handler(Settings(_env_file=None, **told | bounds), schedules, ping)


class Looks:
    """Looks at the queue as a worker would, one job each, and reads what became of them."""

    def __init__(self, pool: asyncpg.Pool, queue: PostgresQueue, clock: Clock) -> None:
        self.pool, self.queue, self.clock = pool, queue, clock

    async def job(self) -> Job:
        await enqueue(self.pool, "watch")
        [claim] = await self.queue.claim_jobs(1)
        return Job.of(claim, lambda told: self.queue.transaction(claim, told), None)

    async def look(self, handler: Handler) -> list[str]:
        """Look once, a minute after the look before; return the texts of the alerts that this made."""
        await self.clock.forward(60)
        return await self.look_now(handler, await self.job())

    async def look_now(self, handler: Handler, job: Job) -> list[str]:
        await handler.run(job)
        assert await self.pool.fetchval("select state from reliq.jobs where id = $1", job.id) == (
            "succeeded"
        )
        return await self.alerts()

    async def alerts(self) -> list[str]:
        """Take the alerts that wait, as if they were sent."""
        rows = await self.pool.fetch(
            "update reliq.jobs set state = 'succeeded', ready = false"
            " where kind = 'alert' and state = 'queued' returning priority, payload"
        )
        assert {row["priority"] for row in rows} <= {0}, "an alert waits behind other jobs"
        return [json.loads(row["payload"]).get("text", row["payload"]) for row in rows]


@pytest.fixture
def looks(pool: asyncpg.Pool, open_queue: OpenQueue, clock: Clock) -> Looks:
    return Looks(pool, open_queue("watcher", kinds=("watch",)), clock)


async def break_it(pool: asyncpg.Pool, clock: Clock, what: str) -> None:
    match what:
        case "dead":
            await pool.execute(DIED, "job", "f", 3)
        case "same-error":
            await pool.execute(DIED, "job", "f", 1)
        case "alerts":
            await pool.execute(DIED, "alert.webhook", "f", 1)
        case "workers":
            await pool.execute(LOST)
        case "due":
            await pool.execute(LATE, timedelta(minutes=11))
        case "leases":
            await pool.execute(STUCK)
        case "breaker":
            await pool.execute("select reliq.limit_queue('crm', opens_after => 1)")
            await pool.execute("update reliq.limits set open_until = reliq.now()")
            await pool.execute(
                "select reliq.enqueue('call', queue => 'crm', run_in => interval '2 hours')"
            )
        case "slot":
            pass


async def mend_it(pool: asyncpg.Pool, clock: Clock, what: str) -> None:
    match what:
        case "dead" | "same-error" | "alerts":
            await pool.execute("update reliq.attempts set ignored_at = reliq.now()")
        case "workers":
            await clock.forward(3_600)
        case "due" | "leases":
            await pool.execute("delete from reliq.jobs where kind = 'job'")
        case "breaker":
            await pool.execute("delete from reliq.jobs where kind = 'call'")  # nobody waits
        case "slot":
            now = await pool.fetchval("select reliq.now()")
            await enqueue(pool, "report", key=f"report@{now:%Y-%m-%dT%H}:00:00Z")


WORDS = {
    "dead": "3 jobs died within 1h",
    "same-error": "3 of kind job",
    "alerts": "3 alerts never arrived",
    "workers": "1 workers fell silent within 1h and lost 3 leases",
    "due": "nobody takes jobs of the queue mail, 1 or more are late, the oldest by 1",
    "leases": "the leases of 1 running jobs ended 10m ago or earlier",
    "breaker": "the breaker of the queue crm is open",
    "slot": "the schedule report is overdue by 10m or more",
}
SEEN_TWICE = {"due", "leases", "slot"}


@pytest.mark.parametrize("what", WORDS)
async def test_an_alarm_is_told_once_and_so_is_its_end(pool, looks: Looks, clock: Clock, what):
    bounds = {
        "dead": {"watch_same_error": 4}, "same-error": {"watch_dead": 4},
    }.get(what, {})  # fmt: skip
    watching = handler(*([HOURLY] if what == "slot" else []), **bounds)
    await to_minute(pool, clock, 30)
    if what != "slot":
        assert await looks.look(watching) == []

    await break_it(pool, clock, what)
    told = [await looks.look(watching) for _ in range(3)]

    first = 1 if what in SEEN_TWICE else 0
    assert [len(texts) for texts in told] == [n == first for n in range(3)]
    assert WORDS[what] in told[first][0]
    await clock.forward(3_300)  # not the whole window, and another slot of the hour
    await mend_it(pool, clock, what)
    over = [await looks.look(watching) for _ in range(2)]
    assert [len(texts) for texts in over] == [1, 0]
    assert over[0][0].startswith("reliq: all well again.\nover after ")
    assert WORDS[what] in over[0][0]


async def to_minute(pool: asyncpg.Pool, clock: Clock, minute: int) -> None:
    """Go on to a minute of an hour, so that the newest slot of the hour is late by then."""
    now = await pool.fetchval("select reliq.now()")
    await clock.forward((minute - now.minute) % 60 * 60)


async def test_what_is_paused_is_nobodys_to_take(pool, looks: Looks):
    watching = handler()
    await pool.execute(LATE, timedelta(minutes=11))
    await pool.execute("select reliq.pause('queue', 'mail')")
    assert [await looks.look(watching) for _ in range(2)] == [[], []]

    await pool.execute("select reliq.resume('queue', 'mail'), reliq.pause('kind', 'job')")
    assert [await looks.look(watching) for _ in range(2)] == [[], []]

    await pool.execute("select reliq.resume('kind', 'job')")
    assert [len(await looks.look(watching)) for _ in range(2)] == [0, 1]


async def test_looks_that_were_held_up_tell_nothing_twice_at_one_moment(pool, looks: Looks, clock):
    """As after a pause, when all that waited run one right after the other."""
    watching = handler()
    await pool.execute(LATE, timedelta(minutes=11))
    late = [await looks.job() for _ in range(3)]
    assert [await looks.look_now(watching, job) for job in late[:2]] == [[], []]

    await clock.forward(360)
    assert await looks.look_now(watching, late[2]) == []
    assert len(await looks.look(watching)) == 1


async def test_a_dead_letter_that_was_made_anew_is_no_alarm(pool, looks: Looks):
    await pool.execute(DIED, "job", "f", 1)
    await pool.execute(
        "insert into reliq.jobs (kind, key, requeued_from, run_at) select 'job', 'k', id,"
        " reliq.now() + interval '1 day' from reliq.jobs where state = 'dead' limit 1"
    )

    assert await looks.look(handler()) == []


async def test_two_looks_at_one_moment_tell_once(pool, looks: Looks):
    watching = handler()
    await pool.execute(DIED, "job", "f", 3)
    jobs = [await looks.job() for _ in range(4)]

    async with anyio.create_task_group() as tasks:
        for job in jobs:
            tasks.start_soon(watching.run, job)

    assert len(await looks.alerts()) == 1


async def test_a_look_whose_lease_is_lost_tells_and_remembers_nothing(pool, looks: Looks):
    await pool.execute(DIED, "job", "f", 3)
    job = await looks.job()
    await pool.execute("update reliq.jobs set fence = fence + 1 where id = $1", job.id)

    with pytest.raises(LeaseLost):
        await handler().run(job)

    assert await looks.alerts() == []
    assert await pool.fetchval("select count(*) from reliq.alarms") == 0


# The call outside --------------------------------------------------------------------------------


async def test_the_address_outside_is_called_while_no_alarm_is_on(
    pool, looks: Looks, clock: Clock, channel: Channel, http
):
    outside = Outgoing(http=lambda: http, url=SecretStr(f"{channel.address}/ping"), what="it")
    watching = handler(ping=outside)

    await looks.look(watching)
    assert [(call.method, call.path) for call in channel.calls] == [("GET", "/ping")]
    await break_it(pool, clock, "due")
    await looks.look(watching)
    await looks.look(watching)
    assert len(channel.calls) == 1, "it was told that all is well"
    await mend_it(pool, clock, "due")
    await looks.look(watching)
    assert len(channel.calls) == 2


@pytest.mark.parametrize("statuses", [[503], None], ids=["refused", "nobody there"])
async def test_a_call_outside_that_fails_is_a_line_of_the_log_and_no_failure(
    looks: Looks, channel: Channel, http, statuses
):
    channel.statuses = statuses or [200]
    address = channel.address if statuses else "http://127.0.0.1:1"
    url = SecretStr(f"{address}/ping/secret-token")
    watching = handler(ping=Outgoing(http=lambda: http, url=url, what="the ping URL"))

    with capture_logs() as logs:
        await looks.look(watching)

    [line] = [line for line in logs if line["event"] == "watch.not_pinged"]
    assert line["error"].startswith("the ping URL ")
    assert "secret-token" not in str(logs)


# Storms ------------------------------------------------------------------------------------------

RAISE = "select reliq.raise_alert(j, $2, '1 hour') from reliq.jobs j where id = $1"
TAKEN = "select array_agg(place) from reliq.alert_places where taken_in >= 0"


async def storm(pool: asyncpg.Pool, open_queue: OpenQueue, jobs: int, workers: int) -> None:
    """Let jobs die in several workers at once, each of an error of its own."""
    await pool.execute(
        "insert into reliq.jobs (kind, key) select 'job', 'k' from generate_series(1, $1)", jobs
    )
    words = ["".join(letters) for letters in product(string.ascii_lowercase, repeat=3)]

    async def work(name: str) -> None:
        queue = open_queue(name, kinds=("job", "alert"))
        queue.attempts_max = {"job": 8}
        while claims := await queue.claim_jobs(500):
            await queue.settle_jobs(
                [(claim, buried(f"no {words[claim.job_id % len(words)]}")) for claim in claims]
            )

    async with anyio.create_task_group() as tasks:
        for n in range(workers):
            tasks.start_soon(work, f"w{n}")


async def test_a_storm_of_ten_thousand_errors_makes_a_handful_of_messages(
    pool, looks: Looks, open_queue: OpenQueue, clock: Clock
):
    await to_minute(pool, clock, 10)

    await storm(pool, open_queue, 10_000, workers=4)
    singles = await looks.alerts()
    told = [text for _ in range(3) for text in await looks.look(handler())]

    errors = await pool.fetchval(
        "select count(distinct fingerprint) from reliq.attempts where buried"
    )
    assert errors == 10_000
    assert len(singles) <= 11
    assert sum('"more": 10' in text for text in singles) == 1
    assert [text.partition(" jobs died")[0] for text in told] == ["reliq: 5000 or more"]


async def test_places_for_alerts_are_those_of_a_window_and_are_free_again_in_the_next(
    pool, looks: Looks, open_queue: OpenQueue, clock: Clock
):
    await to_minute(pool, clock, 10)
    await storm(pool, open_queue, 50, workers=1)
    assert len(await looks.alerts()) == 11

    await storm(pool, open_queue, 50, workers=1)
    assert await looks.alerts() == []

    await clock.forward(3_600)
    await storm(pool, open_queue, 50, workers=1)
    assert len(await looks.alerts()) == 11


async def test_one_error_at_one_moment_in_many_workers_is_told_once(
    dsn: str, pool: asyncpg.Pool, open_queue: OpenQueue, clock: Clock
):
    """Who waits for a place learns what it was taken for; nobody takes that for a storm."""
    many = 12
    await to_minute(pool, clock, 10)
    for _ in range(many + 1):
        await enqueue(pool, "job")
    first, *others = await open_queue("w").claim_jobs(many + 1)
    waiting = "select count(distinct pid) from pg_locks where not granted"

    async with (
        Database(dsn=dsn).pool("reliq tests", many) as workers,
        pool.acquire() as other,
        anyio.create_task_group() as tasks,
    ):
        transaction = other.transaction()
        await transaction.start()
        assert await other.fetchval(RAISE, first.job_id, fingerprint("refused"))
        for claim in others:
            queue = open_queue("w", pool=workers)
            tasks.start_soon(queue.settle_jobs, [(claim, buried("refused"))])
        with anyio.fail_after(10):
            while await pool.fetchval(waiting) < many:
                await anyio.sleep(0.01)
        await transaction.commit()

    assert await pool.fetchval("select count(*) from reliq.jobs where kind = 'alert'") == 1
    assert await pool.fetchval(TAKEN) == [1]


async def test_workers_with_windows_of_their_own_share_the_places(pool, queue: PostgresQueue):
    """While settings are changed, worker by worker, a storm has no more places than before."""
    for _ in range(60):
        await enqueue(pool, "job")
    claims = await queue.claim_jobs(60)

    made = [
        await pool.fetchval(
            "select reliq.raise_alert(j, $2, $3) from reliq.jobs j where id = $1",
            claim.job_id, f"error {claim.job_id}", timedelta(days=300 if n % 2 else 400),
        )
        for n, claim in enumerate(claims)
    ]  # fmt: skip

    assert len([alert for alert in made if alert]) <= 22


async def test_the_channel_of_an_alert_that_dies_makes_no_alert(pool, open_queue: OpenQueue):
    queue = open_queue(kinds=("alert.webhook", "alert"))
    await enqueue(pool, "alert.webhook")
    [claim] = await queue.claim_jobs(1)

    await queue.settle_jobs([(claim, buried())])

    assert await pool.fetchval("select count(*) from reliq.jobs where kind = 'alert'") == 0


# Channels ----------------------------------------------------------------------------------------

APP = {
    "app": "reliq.automations:app", "schedule_every": "1h",
    **{f"secrets__{source}": "x" * 32 for source in ("site", "telegram", "github")},
}  # fmt: skip
DEAD = {"job_id": 7, "kind": "job", "reason": "permanent", "attempt": 1, "error": "no account"}


async def attempts(pool: asyncpg.Pool, kind: str) -> int:
    found: int = await pool.fetchval("select count(*) from reliq.attempts where kind = $1", kind)
    return found


async def failed(pool: asyncpg.Pool, kind: str, times: int) -> None:
    """Wait until jobs of a kind have failed so often and wait for their next attempt."""
    with anyio.fail_after(30):
        while await attempts(pool, kind) < times:
            await anyio.sleep(0.02)


async def test_an_alert_whose_channel_is_down_arrives_later_and_once(
    pool, start: StartCommand, clock: Clock, channel: Channel
):
    """With an address for alerts and no bot: the worker starts, and needs none."""
    channel.statuses = [502, 502, 200]
    worker = start("worker", **APP, alert_url=f"{channel.address}/alerts/secret-token")
    await enqueue(pool, "alert", DEAD, key="job:ab:1")
    for times in (1, 2):
        await failed(pool, "alert", times)
        await clock.forward(60)
    await until(lambda: bool(channel.heard()))
    await worker.logged("attempt.ended")

    assert [call.status for call in channel.calls] == [502, 502, 200]
    [heard] = channel.heard("/alerts/secret-token")
    assert heard.key == "job:ab:1"
    assert set(heard.body) == {"text", "key"}
    assert (heard.body["key"], "job 7 (job) is dead" in heard.body["text"]) == ("job:ab:1", True)
    assert "secret-token" not in worker.log


async def test_of_two_channels_one_that_is_down_does_not_hold_up_the_other(
    pool, start: StartCommand, clock: Clock, channel: Channel
):
    with open_channel() as telegram:
        telegram.statuses = [502, 200]
        start(
            "worker", **APP, alert_url=f"{channel.address}/alerts", telegram_api=telegram.address,
            telegram_token="1:token", alert_chat_id="-100",
        )  # fmt: skip
        await enqueue(pool, "alert", DEAD, key="job:ab:1")
        await failed(pool, "alert.telegram", 1)
        await until(lambda: bool(channel.heard()))
        assert telegram.heard() == []
        await clock.forward(60)
        await until(lambda: bool(telegram.heard()))

    [by_webhook], [by_telegram] = channel.heard(), telegram.heard("/bot1:token/sendMessage")
    assert by_telegram.body == {"chat_id": "-100", "text": by_webhook.body["text"]}
    assert by_telegram.key == by_webhook.key == "job:ab:1"
    assert len(channel.calls) == 1


async def test_a_worker_watches_by_itself_and_its_alarms_arrive(
    pool, start: StartCommand, channel: Channel
):
    await pool.execute(DIED, "job", "f", 3)
    start(
        "worker", **APP, alert_url=f"{channel.address}/alerts", watch_dead="3",
        watch_ping_url=f"{channel.address}/ping",
    )  # fmt: skip

    await until(lambda: bool(channel.heard("/alerts")))
    assert "3 jobs died" in channel.heard("/alerts")[0].body["text"]
    assert channel.heard("/ping") == []
