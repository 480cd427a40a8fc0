"""The handler of alerts: one message for a job that died, retried by the queue."""

import json
import ssl
from datetime import timedelta

import httpx
import pytest
import respx
from pydantic import SecretStr

from reliq.app import Job
from reliq.automations import alert
from reliq.automations.telegram import TEXT_MAX, Telegram
from reliq.errors import PermanentError, TemporaryError

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
        await alert.handler(bot).run(job)


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
