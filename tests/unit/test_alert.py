"""The handlers of alerts: one message for a job that died, retried by the queue."""

import json
import ssl
from datetime import timedelta

import httpx
import pytest
import respx
from pydantic import SecretStr

from reliq.automations import alert
from reliq.automations.telegram import TEXT_MAX, Telegram
from reliq.errors import PermanentError, TemporaryError
from reliq.job import Job

pytestmark = pytest.mark.anyio

SEND = "https://telegram.test/bot1:token/sendMessage"
DEAD = {"job_id": 7, "kind": "site.form", "reason": "permanent", "attempt": 1, "error": "no such"}


async def handle(payload):
    job = Job(
        id=9, kind="alert", key="site.form:ab:1", payload=payload, attempt=1, attempts_max=8,
        event_id=None, _transaction=None, _once=None,
    )  # fmt: skip
    async with httpx.AsyncClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as http:
        bot = Telegram(
            http=lambda: http,
            api="https://telegram.test/",
            token=SecretStr("1:token"),
            timeout=timedelta(seconds=5),
            alert_chat_id="-100",
        )
        await alert.handlers({"telegram": alert.by_telegram(bot)})["alert"].run(job)


@respx.mock
async def test_an_alert_names_the_job_its_kind_its_error_and_what_to_do():
    sent = respx.post(SEND).respond(200)

    await handle(DEAD)

    [call] = sent.calls
    message = json.loads(call.request.content)
    assert message["chat_id"] == "-100"
    for part in ("job 7", "site.form", "permanent", "attempt 1", "reliq retry 7", "no such"):
        assert part in message["text"]
    assert call.request.headers["idempotency-key"] == "site.form:ab:1"


@respx.mock
async def test_an_error_of_any_length_fits_into_one_message():
    sent = respx.post(SEND).respond(200)

    await handle(DEAD | {"error": "x" * 100_000})

    text = json.loads(sent.calls[0].request.content)["text"]
    assert len(text) <= TEXT_MAX
    assert "reliq show 7" in text


@respx.mock
@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ({"return_value": httpx.Response(502)}, TemporaryError),
        ({"return_value": httpx.Response(403)}, PermanentError),
        ({"side_effect": httpx.ConnectError("away")}, TemporaryError),
    ],
)
async def test_an_alert_that_cannot_be_sent_raises_so_that_the_queue_tries_again(trouble, error):
    respx.post(SEND).mock(**trouble)

    with pytest.raises(error):
        await handle(DEAD)


def test_a_text_that_is_made_already_is_sent_as_it_is():
    assert alert.text({"text": "reliq: all well again."}) == "reliq: all well again."


def test_the_last_alert_of_a_window_says_that_others_are_not_told_one_by_one():
    told = alert.text(DEAD | {"more": 10})

    assert "job 7" in told
    assert "10 other errors were told of" in told
    assert told.endswith("\n\nno such")


def test_two_channels_are_kinds_of_their_own_and_one_is_not():
    async def send(_text, _key):
        """Send nothing."""

    assert list(alert.handlers({"webhook": send})) == ["alert"]
    assert list(alert.handlers({"webhook": send, "telegram": send})) == [
        "alert", "alert.webhook", "alert.telegram",
    ]  # fmt: skip


def test_an_alert_is_tried_for_days_and_goes_before_other_jobs():
    policy = alert.POLICY

    assert timedelta(days=3) < policy.retry.total() < timedelta(days=7)
    assert policy.retry.delay(1, 0.5) <= timedelta(seconds=10)
    assert policy.priority == 0
