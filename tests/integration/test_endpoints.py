"""Endpoints in the tables, and outgoing webhooks by a real worker to a server on loopback."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import anyio
import asyncpg
import pytest
from cryptography.fernet import Fernet
from standardwebhooks import Webhook as Receiver

from reliq import enqueue_many
from reliq.automations.webhook import delivery
from reliq.domain.endpoint import Endpoint
from reliq.domain.job import JobId
from reliq.domain.signing import SECRET_BYTES, secret_of
from reliq.errors import ConfigInvalid, RequestRefused, TemporaryError
from reliq.ports import Held
from reliq.postgres.desk import Desk
from reliq.postgres.endpoints import PostgresEndpoints, sealing_of
from tests.fixtures.partner import Partner, Reply, open_partner
from tests.fixtures.processes import Seen, StartCommand
from tests.fixtures.store import OpenQueue

pytestmark = pytest.mark.anyio

OLD_KEY, NEW_KEY = (Fernet.generate_key().decode() for _ in range(2))
FIRST, SECOND, THIRD = (secret_of(bytes([n]) * SECRET_BYTES) for n in (1, 2, 3))
DAY_S = 86_400.0
WAITING = "select count(distinct pid) from pg_locks where not granted"


SHOP = Endpoint(
    name="shop", url="https://shop.test/", secrets=(), disabled_why=None,
    now=datetime.min.replace(tzinfo=UTC), enqueued_at=datetime.min.replace(tzinfo=UTC),
)  # fmt: skip


@pytest.fixture
def endpoints(pool: asyncpg.Pool) -> PostgresEndpoints:
    return PostgresEndpoints(pool, sealing_of(f"2026a:{OLD_KEY}"), alerts=True)


async def held(pool: asyncpg.Pool, open_queue: OpenQueue) -> tuple[int, int]:
    """Claim a job that delivers to `shop`."""
    async with pool.acquire() as connection:
        await enqueue_many(connection, [delivery("shop", "order.paid", {"order": 7})])
    [claim] = await open_queue(kinds=("webhook.deliver",)).claim_jobs(1)
    return claim.held


async def row(pool: asyncpg.Pool) -> asyncpg.Record:
    return await pool.fetchrow("select * from reliq.endpoints where name = 'shop'")


# The table --------------------------------------------------------------------------------------


async def test_an_added_endpoint_has_sealed_secrets_and_limits_of_its_queue(pool, endpoints):
    await endpoints.add("shop", "https://shop.test/", FIRST)

    stored = await row(pool)
    assert FIRST not in stored["sealed"]
    assert "2026a:gAAAA" in stored["sealed"]
    limit = await pool.fetchrow("select * from reliq.limits where queue = 'webhook:shop'")
    assert (limit["max_running"], limit["opens_after"], limit["rate"]) == (4, 5, None)
    [shown] = await endpoints.show()
    assert "sealed" not in shown
    with pytest.raises(RequestRefused, match="there is an endpoint 'shop' already"):
        await endpoints.add("shop", "https://other.test/", SECOND)
    assert (await row(pool))["url"] == "https://shop.test/"


async def test_limits_that_somebody_has_set_stay_and_go_with_the_endpoint(pool, endpoints):
    await pool.execute("select reliq.limit_queue('webhook:shop', 1)")

    await endpoints.add("shop", "https://shop.test/", FIRST)
    assert await pool.fetchval("select max_running from reliq.limits") == 1
    await endpoints.remove("shop")
    assert await pool.fetchval("select count(*) from reliq.limits") == 0
    assert await endpoints.show() == []


async def test_without_keys_nothing_is_stored_and_what_is_sealed_is_not_read(pool, endpoints):
    without = PostgresEndpoints(pool, None)
    with pytest.raises(ConfigInvalid, match="RELIQ_ENCRYPTION_KEYS is missing"):
        await without.add("shop", "https://shop.test/", FIRST)
    assert await row(pool) is None

    await endpoints.add("shop", "https://shop.test/", FIRST)
    with pytest.raises(TemporaryError, match="sealed, and there are no keys here"):
        await without.find("shop", JobId(1))
    other = PostgresEndpoints(pool, sealing_of(f"2026b:{NEW_KEY}"))
    with pytest.raises(TemporaryError, match="sealed with key '2026a'"):
        await other.find("shop", JobId(1))


@pytest.mark.parametrize(
    "ask",
    [
        lambda endpoints: endpoints.rotate("nobody", FIRST, force=False),
        lambda endpoints: endpoints.switch("nobody", None),
        lambda endpoints: endpoints.remove("nobody"),
    ],
    ids=["rotate", "enable", "remove"],
)
async def test_an_endpoint_that_is_unknown_is_said_to_be(endpoints, ask):
    with pytest.raises(RequestRefused, match="no endpoint 'nobody': `reliq endpoint list`"):
        await ask(endpoints)


async def test_of_a_rotation_both_secrets_sign_for_a_day_the_newest_first(
    pool, endpoints, open_queue, clock
):
    await endpoints.add("shop", "https://shop.test/", FIRST)
    job_id, _ = await held(pool, open_queue)
    assert (await endpoints.find("shop", job_id)).secrets == (FIRST,)

    await endpoints.rotate("shop", SECOND, force=False)
    assert (await endpoints.find("shop", job_id)).secrets == (SECOND, FIRST)
    await clock.forward(DAY_S - 60)
    assert (await endpoints.find("shop", job_id)).secrets == (SECOND, FIRST)
    with pytest.raises(RequestRefused, match=r"changed less than a day ago.*--force"):
        await endpoints.rotate("shop", THIRD, force=False)
    await clock.forward(120)
    assert (await endpoints.find("shop", job_id)).secrets == (SECOND,)
    await endpoints.rotate("shop", THIRD, force=False)
    assert (await endpoints.find("shop", job_id)).secrets == (THIRD, SECOND)


async def test_a_second_rotation_within_the_day_is_made_by_force(pool, endpoints, open_queue):
    await endpoints.add("shop", "https://shop.test/", FIRST)
    job_id, _ = await held(pool, open_queue)
    await endpoints.rotate("shop", SECOND, force=False)

    await endpoints.rotate("shop", THIRD, force=True)

    assert (await endpoints.find("shop", job_id)).secrets == (THIRD, SECOND)


async def test_the_keys_change_and_the_secrets_stay(pool, endpoints):
    await endpoints.add("shop", "https://shop.test/", FIRST)
    both = PostgresEndpoints(pool, sealing_of(f"2026b:{NEW_KEY},2026a:{OLD_KEY}"))

    counted = await both.rekey(only_count=True)
    assert (counted.sealed, counted.left, counted.lost) == (0, 1, {})
    done = await both.rekey(only_count=False)
    assert (done.sealed, done.left) == (1, 0)
    assert "2026b:" in (await row(pool))["sealed"]
    found = await PostgresEndpoints(pool, sealing_of(f"2026b:{NEW_KEY}")).find("shop", JobId(1))
    assert found.secrets == (FIRST,)
    assert (await both.rekey(only_count=False)).sealed == 0
    lost = await endpoints.rekey(only_count=False)
    assert (lost.sealed, sum(lost.lost.values())) == (0, 1)


# What is written about attempts -------------------------------------------------------------------


async def test_five_days_of_nothing_but_failures_disable_with_one_alert(
    pool, endpoints, open_queue, clock
):
    await endpoints.add("shop", "https://shop.test/", FIRST)
    job = await held(pool, open_queue)

    async def fail(days: float) -> str | None:
        await clock.forward(days * DAY_S)
        await pool.execute("update reliq.jobs set lease_until = reliq.now() + interval '1 minute'")
        return await endpoints.undelivered(SHOP, job, gone=None)

    assert [await fail(days) for days in (0, 1, 1, 1, 1, 0.9)] == [None] * 6
    since = (await row(pool))["failing_since"]
    said = await fail(0.2)

    assert said == f"every attempt since {since:%Y-%m-%d %H:%M} UTC has failed"
    found = await row(pool)
    assert (found["failures"], found["disabled_why"]) == (7, said)
    [alert] = await pool.fetch("select payload from reliq.jobs where kind = 'alert'")
    told = json.loads(alert["payload"])
    assert told["reason"] == "its endpoint shop is disabled"
    assert "`reliq endpoint enable shop`" in told["error"]
    assert (told["job_id"], told["kind"], told["attempt"]) == (job[0], "webhook.deliver", 1)
    assert await fail(9) is None
    assert await pool.fetchval("select count(*) from reliq.jobs where kind = 'alert'") == 1


async def test_two_deliveries_that_hear_at_one_moment_that_it_is_gone_make_one_alert(
    pool, endpoints, open_queue
):
    await endpoints.add("shop", "https://shop.test/", FIRST)
    async with pool.acquire() as connection:
        await enqueue_many(connection, [delivery("shop", "order.paid", n) for n in range(2)])
    claims = await open_queue(kinds=("webhook.deliver",)).claim_jobs(2)
    said: list[str | None] = []

    async def hear(job: Held) -> None:
        said.append(await endpoints.undelivered(SHOP, job, gone="it answered 410"))

    async with (
        pool.acquire() as connection,
        anyio.create_task_group() as tasks,
        connection.transaction(),
    ):
        await connection.execute("select 1 from reliq.endpoints for update")
        for claim in claims:
            tasks.start_soon(hear, claim.held)
        with anyio.fail_after(20):
            while await connection.fetchval(WAITING) < 2:
                await anyio.sleep(0.01)

    assert sorted(said, key=str) == [None, "it answered 410"]
    assert await pool.fetchval("select count(*) from reliq.jobs where kind = 'alert'") == 1


async def test_few_failures_a_long_time_apart_disable_nothing(pool, endpoints, open_queue, clock):
    await endpoints.add("shop", "https://shop.test/", FIRST)
    job = await held(pool, open_queue)

    for _ in range(4):
        await pool.execute("update reliq.jobs set lease_until = reliq.now() + interval '1 minute'")
        assert await endpoints.undelivered(SHOP, job, gone=None) is None
        await clock.forward(7 * DAY_S)


async def test_a_success_ends_the_row_of_failures(pool, endpoints, open_queue):
    await endpoints.add("shop", "https://shop.test/", FIRST)
    job = await held(pool, open_queue)
    await endpoints.undelivered(SHOP, job, gone=None)

    await endpoints.delivered(SHOP, job)

    found = await row(pool)
    assert (found["failing_since"], found["failures"]) == (None, 0)


async def test_who_has_lost_the_job_writes_nothing_about_the_endpoint(pool, endpoints, open_queue):
    await endpoints.add("shop", "https://shop.test/", FIRST)
    job_id, fence = await held(pool, open_queue)
    await endpoints.undelivered(SHOP, (job_id, fence), gone=None)
    before = await row(pool)

    assert await endpoints.undelivered(SHOP, (job_id, fence - 1), gone="it answered 410") is None
    await endpoints.delivered(SHOP, (job_id, fence - 1))
    await pool.execute("update reliq.jobs set lease_until = reliq.now()")
    assert await endpoints.undelivered(SHOP, (job_id, fence), gone="it answered 410") is None

    assert await row(pool) == before


async def test_what_a_former_address_answered_says_nothing_of_the_new_one(
    pool, endpoints, open_queue
):
    await endpoints.add("shop", "https://shop.test/new", FIRST)
    job = await held(pool, open_queue)
    await endpoints.undelivered(replace(SHOP, url="https://shop.test/new"), job, gone=None)
    before = await row(pool)

    assert await endpoints.undelivered(SHOP, job, gone="it answered 410") is None
    await endpoints.delivered(SHOP, job)

    assert await row(pool) == before


async def test_without_a_handler_of_alerts_none_is_made(pool, endpoints, open_queue):
    await endpoints.add("shop", "https://shop.test/", FIRST)
    quiet = PostgresEndpoints(pool, endpoints.sealing, alerts=False)

    said = await quiet.undelivered(SHOP, await held(pool, open_queue), gone="it answered 410")

    assert said == "it answered 410"
    assert await pool.fetchval("select count(*) from reliq.jobs where kind = 'alert'") == 0


async def test_a_job_that_was_made_anew_tells_the_time_of_the_first(pool, endpoints, open_queue):
    await endpoints.add("shop", "https://shop.test/", FIRST)
    job_id, _ = await held(pool, open_queue)
    await pool.execute("update reliq.jobs set state = 'dead', created_at = '2026-01-01Z'")
    anew = await pool.fetchval(
        "insert into reliq.jobs (kind, key, requeued_from) values ('webhook.deliver', 'k', $1)"
        " returning id", job_id,
    )  # fmt: skip

    first, again = [await endpoints.find("shop", JobId(each)) for each in (job_id, anew)]

    assert first.enqueued_at == again.enqueued_at
    assert first.now > first.enqueued_at


@pytest.mark.parametrize("many", [False, True])
async def test_it_tells_that_time_also_when_the_letters_before_are_forgotten(
    pool, endpoints, open_queue, many
):
    await endpoints.add("shop", "https://shop.test/", FIRST)
    letter, _ = await held(pool, open_queue)
    first = await endpoints.find("shop", letter)
    desk = Desk(pool)

    for _ in range(2):
        await pool.execute(
            "update reliq.jobs set state = 'dead', ready = false where id = $1", letter
        )
        if many:
            await desk.requeue_jobs(
                [letter], by="ann", reason="", apart=timedelta(0), even_ignored=False
            )
        else:
            await desk.requeue_job(letter, by="ann", reason="", even_ignored=False)
        await pool.execute("delete from reliq.jobs where id = $1", letter)
        letter = JobId(await pool.fetchval("select id from reliq.jobs"))

    assert (await endpoints.find("shop", letter)).enqueued_at == first.enqueued_at


# By a real worker -------------------------------------------------------------------------------

SETTINGS = {
    "app": "reliq.automations:app",
    "telegram_token": "1:token",
    "alert_chat_id": "1",
    "telegram_api": "http://127.0.0.1:1",
    "secrets__site": "x" * 8, "secrets__telegram": "x" * 8, "secrets__github": "x" * 8,
    "encryption_keys": f"2026a:{OLD_KEY}",
    "webhook_private": "on",
    "webhook_timeout": "1s",
}  # fmt: skip


async def operate(start: StartCommand, *words: str, code: int = 0, **more: str) -> str:
    command = start("endpoint", *words, **SETTINGS | more)
    assert await command.exit_code() == code, command.log
    return command.log


async def added(start: StartCommand, partner: Partner) -> str:
    said = await operate(start, "add", "shop", partner.url())
    return said.splitlines()[-1]


async def enqueued(pool: asyncpg.Pool, *events: str, ordered: bool = False) -> list[int]:
    jobs = [delivery("shop", event, {"order": 7}, ordered=ordered) for event in events]
    async with pool.acquire() as connection:
        return [made.job_id for made in await enqueue_many(connection, jobs)]


async def in_state(seen: Seen, job_id: int, state: str) -> None:
    with anyio.fail_after(30):
        while (await seen.job(job_id))["state"] != state:
            await anyio.sleep(0.02)


async def test_an_event_reaches_its_endpoint_and_verifies_also_while_the_secret_changes(
    start, pool
):
    seen = Seen(pool)
    async with open_partner() as partner:
        old = await added(start, partner)
        start("worker", **SETTINGS)
        [before] = await enqueued(pool, "order.paid")
        await seen.at_rest()
        said = await operate(start, "rotate", "shop")
        new = said.splitlines()[-1]
        await enqueued(pool, "order.sent")
        await seen.at_rest()

    first, second = partner.received
    assert Receiver(old).verify(first.body, first.headers)["type"] == "order.paid"
    for secret in (old, new):
        assert Receiver(secret).verify(second.body, second.headers)["type"] == "order.sent"
    job = await seen.job(before)
    assert (job["state"], job["queue"]) == ("succeeded", "webhook:shop")
    created = json.loads(first.body)["timestamp"]
    assert created == job["created_at"].isoformat()
    assert json.loads(job["result"]) == {
        "status": 200, "address": "127.0.0.1", "message": first.headers["webhook-id"],
    }  # fmt: skip
    assert "less than a day ago" in await operate(start, "rotate", "shop", code=1)


async def test_one_that_is_gone_is_disabled_and_called_no_more_until_it_is_enabled(start, pool):
    seen = Seen(pool)
    async with open_partner(Reply(410), Reply(200)) as partner:
        await added(start, partner)
        start("worker", **SETTINGS)
        ids = await enqueued(pool, *["order.paid"] * 3, ordered=True)
        for job_id in ids:
            await in_state(seen, job_id, "dead")
        assert len(partner.received) == 1
        said = await operate(start, "list")
        assert "disabled" in said
        assert "it answered 410" in said
        assert "abcdefgh" not in said
        await operate(start, "enable", "shop")
        [after] = await enqueued(pool, "order.paid")
        await in_state(seen, after, "succeeded")

    first, second, _ = [await seen.job(job_id) for job_id in ids]
    assert (first["dead_reason"], second["dead_reason"]) == ("permanent", "gave_up")
    assert "`reliq endpoint enable shop`, then `reliq retry" in second["last_error"]
    [attempt] = await pool.fetch(
        "select status, ended, error from reliq.attempts where job_id = $1", first["id"]
    )
    assert (attempt["status"], attempt["ended"]) == (410, "failed")
    alerts = await pool.fetch("select payload from reliq.jobs where kind = 'alert'")
    told = [json.loads(alert["payload"]) for alert in alerts]
    assert "its endpoint shop is disabled" in {each["reason"] for each in told}


async def test_one_that_asks_for_a_pause_gets_it_and_one_that_hangs_is_left(start, pool):
    busy = Reply(429, {"retry-after": "4000"})
    async with open_partner(busy, Reply(hangs=True)) as partner:
        await added(start, partner)
        start("worker", **SETTINGS)
        first, second = await enqueued(pool, "order.paid", "order.sent", ordered=False)
        ask = "select job_id, status, error from reliq.attempts order by ended_at"
        with anyio.fail_after(30):
            while len(attempts := await pool.fetch(ask)) < 2:
                await anyio.sleep(0.02)

    assert {(each["status"], "did not answer (within 1 s)" in each["error"]) for each in attempts} == {
        (429, False), (None, True),
    }  # fmt: skip
    asked = next(each["job_id"] for each in attempts if each["status"] == 429)
    waits = await pool.fetchval("select run_at - reliq.now() from reliq.jobs where id = $1", asked)
    assert timedelta(seconds=3900) < waits < timedelta(seconds=4500)
    assert asked in {first, second}


async def test_the_command_says_what_is_wrong_with_a_name_an_address_or_the_keys(start, pool):
    for words in (["add", "The Shop", "https://shop.test/"], ["add", "shop", "http://shop.test/"],
                  ["add", "shop", "https://u:p@shop.test/"], ["add", "shop", "https://127.0.0.1/hook"],
                  ["add", "shop", "https://10.0.0.7/"]):  # fmt: skip
        said = await operate(start, *words, code=2, webhook_private="off")
        assert "Invalid value" in said
    await operate(start, "add", "shop", "http://127.0.0.1:99999/", code=2, webhook_private="on")
    for words in (["add", "shop", "https://shop.test/"], ["rotate", "shop"]):
        said = await operate(start, *words, code=2, encryption_keys="")
        assert "RELIQ_ENCRYPTION_KEYS is missing" in said
    assert await row(pool) is None

    await operate(start, "add", "shop", "https://shop.test/", webhook_private="off")
    await operate(start, "disable", "shop", "--why", "moves house", "--by", "ada")
    assert (await row(pool))["disabled_why"] == "by ada: moves house"
    said = await operate(start, "enable", "shop")
    assert "`reliq retry --queue webhook:shop` makes its dead letters anew" in said
    rekeyed = start("rekey", **SETTINGS | {"encryption_keys": f"2026b:{NEW_KEY},2026a:{OLD_KEY}"})
    assert await rekeyed.exit_code() == 0
    assert "and the secrets of 1 endpoint" in rekeyed.log
    await operate(start, "remove", "shop")
    assert await row(pool) is None
