"""The bot's voice: what an answer means, how long a call may take, and that its token stays in."""

import json
import logging
import ssl
import traceback
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import httpx
import pytest
import respx
from pydantic import SecretStr
from structlog.testing import capture_logs

from reliq.automations.telegram import TEXT_MAX, Telegram, shortened
from reliq.errors import ConfigInvalid, PermanentError, TemporaryError

pytestmark = pytest.mark.anyio

TOKEN = "123456:AAE-this-is-the-token"
API = "https://telegram.test"
SEND = f"{API}/bot{TOKEN}/sendMessage"

BAD_ANSWERS = [
    httpx.Response(502),
    httpx.Response(404, text=f"<pre>Cannot POST /bot{TOKEN}/sendMessage</pre>"),
    httpx.Response(301, headers={"Location": SEND}),
    httpx.Response(500, content=b"\xff" + SEND.encode()),
]


def bot(http, *, api=API, token=TOKEN, seconds=5.0):
    return Telegram(
        http=lambda: http,
        api=api,
        token=SecretStr(token),
        timeout=timedelta(seconds=seconds),
        alert_chat_id="-100",
    )


@pytest.fixture
async def http():
    async with httpx.AsyncClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as client:
        yield client


@asynccontextmanager
async def serving(behave):
    """A real server on the loopback interface that treats every connection like this."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, behave)
        port = listener.listeners[0].extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610
        yield f"http://127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


async def hang(stream):
    async with stream:
        await anyio.sleep_forever()


async def drip(stream):
    async with stream:
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            await stream.send(b"x")
            await anyio.sleep(0.02)


@respx.mock
async def test_a_message_goes_to_its_chat_under_its_key(http):
    sent = respx.post(SEND).respond(200, json={"ok": True})

    await bot(http).send_message(42, "pong", key="event:7:telegram.message:1")

    [call] = sent.calls
    assert json.loads(call.request.content) == {"chat_id": 42, "text": "pong"}
    assert call.request.headers["idempotency-key"] == "event:7:telegram.message:1"


@respx.mock
async def test_a_key_of_any_text_fits_into_the_header(http):
    sent = respx.post(SEND).respond(200)

    await bot(http).send_message(42, "pong", key="ключ\r\nX-Evil: 1 \ud800")

    header = sent.calls[0].request.headers["idempotency-key"]
    assert header.startswith("%D0%BA")
    assert header.isascii()
    assert header.isprintable()


@respx.mock
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, PermanentError),
        (401, PermanentError),
        (403, PermanentError),
        (302, PermanentError),
        (429, TemporaryError),
        (500, TemporaryError),
        (502, TemporaryError),
    ],
)
async def test_an_answer_that_is_no_success_says_whether_to_try_again(http, status, error):
    respx.post(SEND).respond(status)

    with pytest.raises(error) as raised:
        await bot(http).send_message(42, "pong")

    assert raised.value.status == status


@respx.mock
async def test_the_pause_that_telegram_asks_for_is_passed_on(http):
    respx.post(SEND).respond(429, headers={"Retry-After": "35"})

    with pytest.raises(TemporaryError) as raised:
        await bot(http).send_message(42, "pong")

    assert raised.value.after == timedelta(seconds=35)


@respx.mock
@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError(f"cannot reach {SEND}"),
        httpx.ReadTimeout(f"{SEND} is slow"),
        httpx.RemoteProtocolError("what was that"),
        httpx.InvalidURL(f"no address: {SEND}"),
    ],
)
async def test_an_error_of_the_network_is_temporary_and_holds_no_token(http, error):
    respx.post(SEND).mock(side_effect=error)

    with pytest.raises(TemporaryError) as raised:
        await bot(http).send_message(42, "pong")

    assert str(raised.value) == f"Telegram did not answer ({type(error).__name__})"
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    assert TOKEN not in "".join(traceback.format_exception(raised.value))


@respx.mock
@pytest.mark.parametrize("answer", BAD_ANSWERS, ids=lambda answer: answer.status_code)
async def test_no_answer_however_odd_brings_the_token_into_an_error(http, answer):
    respx.post(SEND).mock(return_value=answer)

    with pytest.raises((PermanentError, TemporaryError)) as raised:
        await bot(http).send_message(42, "pong")

    told = "".join(traceback.format_exception(raised.value))
    assert TOKEN not in told
    assert TOKEN.split(":")[1] not in told


async def test_a_token_that_fits_into_no_address_is_not_shown_either(http):
    with pytest.raises(ConfigInvalid) as raised:
        await bot(http, token=f"{TOKEN}\n").send_message(42, "pong")

    assert TOKEN not in "".join(traceback.format_exception(raised.value))


@respx.mock
async def test_the_token_is_in_no_log_and_no_repr(http, caplog):
    respx.post(SEND).respond(502)
    caplog.set_level(logging.WARNING)

    with capture_logs() as logs:
        await bot(http).alert("dead")

    assert TOKEN not in f"{bot(http)!r}{bot(http)}{logs}{caplog.text}"


async def test_a_call_ends_at_its_deadline_though_the_server_hangs(http):
    async with serving(hang) as api:
        with anyio.fail_after(3), pytest.raises(TemporaryError, match=r"within 0\.2 s"):
            await bot(http, api=api, seconds=0.2).send_message(42, "pong")


async def test_a_body_that_drips_takes_nothing_away_from_the_status(http):
    async with serving(drip) as api:
        with anyio.fail_after(3):
            await bot(http, api=api, seconds=0.2).send_message(42, "pong")


async def test_a_server_that_is_not_there_is_temporary(http):
    async with serving(hang) as api:
        pass

    with pytest.raises(TemporaryError, match="ConnectError"):
        await bot(http, api=api).send_message(42, "pong")


@respx.mock
async def test_an_alert_that_was_sent_says_so(http):
    sent = respx.post(SEND).respond(200)

    assert await bot(http).alert("job 7 is dead") is True

    assert json.loads(sent.calls[0].request.content) == {"chat_id": "-100", "text": "job 7 is dead"}


@respx.mock
@pytest.mark.parametrize(
    "trouble",
    [httpx.Response(500), httpx.ConnectError(SEND), RuntimeError(SEND), UnicodeError(SEND)],
    ids=repr,
)
async def test_an_alert_never_raises_and_logs_that_it_was_not_sent(http, trouble):
    respx.post(SEND).mock(
        **{"return_value" if isinstance(trouble, httpx.Response) else "side_effect": trouble}
    )

    with capture_logs() as logs:
        assert await bot(http).alert("job 7 is dead") is False

    assert [log["event"] for log in logs] == ["alert.not_sent"]
    assert TOKEN not in str(logs)


async def test_an_alert_ends_at_its_deadline_too(http):
    async with serving(hang) as api:
        with anyio.fail_after(3), capture_logs():
            assert await bot(http, api=api, seconds=0.2).alert("job 7 is dead") is False


@pytest.mark.parametrize("letter", ["x", "ю", "\U0001f600"])
def test_a_long_text_is_cut_to_what_telegram_counts_as_one_message(letter):
    cut = shortened(letter * 5000)

    assert TEXT_MAX - 2 <= len(cut.encode("utf-16-le")) // 2 <= TEXT_MAX
    assert cut.endswith("…")
    assert set(cut[:-1]) == {letter}


def test_a_short_text_is_sent_as_it_is_and_what_no_text_can_hold_is_replaced():
    assert shortened("short\ud800") == "short\ufffd"
