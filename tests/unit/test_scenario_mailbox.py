"""The harness's mail server, as a real client over real sockets meets it."""

from contextlib import asynccontextmanager

import aiosmtplib
import anyio
import pytest

from reliq.scenario.model.system import Dispatch
from reliq.scenario.recorder import Recorder
from reliq.scenario.stage.mailbox import open_mailbox
from reliq.servers.loopback import HOST

pytestmark = pytest.mark.anyio

MAIL = "Message-ID: <1@x>\r\nTo: ada@drill.test\r\nSubject: k\r\n\r\n.\r\nHello\r\n"


@asynccontextmanager
async def serving(*rules: Dispatch):
    recorder = Recorder()
    async with open_mailbox(rules, recorder) as mailbox:
        with anyio.fail_after(10):
            yield recorder, aiosmtplib.SMTP(hostname=HOST, port=mailbox.port)


async def send(client: aiosmtplib.SMTP) -> str:
    try:
        _, said = await client.sendmail("shop@drill.test", ["ada@drill.test"], MAIL)
    except aiosmtplib.SMTPException as error:
        return f"{type(error).__name__} {getattr(error, 'code', '')}".rstrip()
    return str(said)


async def answers(recorder: Recorder, nth: int) -> list[tuple[object, ...]]:
    await recorder.wait_for(nth, lambda seen: seen.e == "answer")
    return [(x.a["code"], x.a["how"], x.a["rule"]) for x in recorder.entries if x.e == "answer"]


async def test_a_mail_is_logged_with_what_its_recipient_sees_and_taken():
    async with serving() as (recorder, client):
        async with client:
            assert await send(client) == "said the drill"
        assert await answers(recorder, 1) == [(250, "heard", -1)]

    [message] = [x for x in recorder.entries if x.e == "message"]
    assert message.src == "mail"
    assert dict(message.a) == {
        "mail": 1, "key": "k", "message_id": "<1@x>", "to": "ada@drill.test"
    }  # fmt: skip


async def test_answers_come_in_the_order_of_the_rules():
    rules = (
        Dispatch(reply="accept", times=1), Dispatch(reply="later", times=1),
        Dispatch(reply="refuse"),
    )  # fmt: skip
    async with serving(*rules) as (recorder, client):
        async with client:
            said = [await send(client) for _ in range(4)]
        seen = await answers(recorder, 4)

    assert said == ["said the drill", "SMTPDataError 451", *["SMTPDataError 554"] * 2]
    assert seen == [(250, "heard", 0), (451, "heard", 1), (554, "heard", 2), (554, "heard", 2)]


async def test_a_text_that_is_dropped_is_logged_and_not_answered():
    async with serving(Dispatch(reply="drop_after_data", times=1)) as (recorder, client):
        await client.connect()
        assert await send(client) == "SMTPServerDisconnected"
        assert await answers(recorder, 1) == [(None, "dropped", 0)]
        async with client:
            assert await send(client) == "said the drill"

    assert [x.e for x in recorder.entries] == ["message", "answer"] * 2


async def test_an_answer_whose_client_has_gone_was_not_heard():
    async with serving() as (recorder, client):
        await client.connect()
        await client.ehlo()
        for line in (b"MAIL FROM:<a@b>", b"RCPT TO:<c@d>", b"DATA"):
            await client.execute_command(line)
        client.transport.write(b"Subject: k\r\n\r\nHello\r\n.\r\n")
        client.close()

        assert await answers(recorder, 1) == [(250, "unheard", -1)]
