"""The handlers of alerts: one message for a job that died, retried by the queue."""

import json
import re
import ssl
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import respx
from pydantic import SecretStr

from reliq.automations import alert
from reliq.automations.outgoing import Outgoing
from reliq.automations.telegram import TEXT_MAX, Telegram
from reliq.errors import ConfigInvalid, PermanentError, TemporaryError
from reliq.job import Job
from reliq.settings import Settings

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "automations.md"
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


def not_async(_text, _key):
    """Send nothing, and give nothing to wait for."""


@pytest.mark.parametrize(
    ("channels", "said"),
    [
        ({}, "without a channel alerts count as sent"),
        ({"ops": not_async}, "the channel 'ops'=.*: use a coroutine function"),
        ({"ops": None}, "the channel 'ops'=None"),
        ({"": not_async}, "the name of a channel=''"),
    ],
)
def test_channels_that_would_tell_nobody_are_refused(channels, said):
    with pytest.raises(ValueError, match=said):
        alert.handlers(channels)


@pytest.mark.parametrize(
    ("token", "chat", "missing"),
    [("", "", ["RELIQ_TELEGRAM_TOKEN", "RELIQ_ALERT_CHAT_ID"]), ("1:t", "", ["RELIQ_ALERT_CHAT_ID"]),
     ("", "-1", ["RELIQ_TELEGRAM_TOKEN"])],
)  # fmt: skip
def test_a_bot_without_token_or_chat_is_no_channel(token, chat, missing):
    bot = Telegram(
        http=httpx.AsyncClient, api="https://telegram.test", token=SecretStr(token),
        timeout=timedelta(seconds=5), alert_chat_id=chat,
    )  # fmt: skip

    with pytest.raises(ConfigInvalid) as raised:
        alert.by_telegram(bot)

    assert [problem.split()[0] for problem in raised.value.problems] == missing


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"url": None}, "^Outgoing.what='the CRM'. has no url: set what it is taken from"),
        ({"url": "https://crm.test/hunter2"}, "its url is no SecretStr"),
        ({"url": SecretStr("crm.test/hunter2")}, "its url is wrong: write it as https://"),
        ({"url": SecretStr("https://crm.test/hunter2\n")}, "its url is wrong"),
        ({"http": None}, "Outgoing.what='the CRM'.: http=None: use a function"),
        ({"deadline": 10}, "Outgoing.what='the CRM'.: deadline=10: use a timedelta"),
    ],
)
def test_an_address_to_call_that_is_none_is_refused_and_not_quoted(fields, said):
    right = {"http": not_async, "url": SecretStr("https://crm.test/"), "what": "the CRM"}

    with pytest.raises((ConfigInvalid, ValueError), match=said) as raised:
        Outgoing(**right | fields)

    assert "hunter2" not in str(raised.value)


def on_the_page(**told):
    """Make the App that the page shows, with these settings."""
    _, section = PAGE.read_text(encoding="utf-8").split("### In an App of your own")
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    module = {"build": not_async}
    exec(code, module)  # noqa: S102 - our own page
    return module["app"](Settings(_env_file=None, database_url="postgresql://h/d", **told))


def test_the_app_of_the_page_pings_where_the_settings_say_so():
    addresses = {"alert_url": "https://ops.test/a", "watch_ping_url": "https://ops.test/ping"}

    assert on_the_page(**addresses).handler("watch").run.ping.what == "the ping URL"
    del addresses["watch_ping_url"]
    assert on_the_page(**addresses).handler("watch").run.ping is None
    with pytest.raises(ConfigInvalid, match="has no url"):
        on_the_page()


def test_an_alert_is_tried_for_days_and_goes_before_other_jobs():
    policy = alert.POLICY

    assert timedelta(days=3) < policy.retry.total() < timedelta(days=7)
    assert policy.retry.delay(1, 0.5) <= timedelta(seconds=10)
    assert policy.priority == 0
