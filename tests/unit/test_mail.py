"""Mail: what a server's answers mean, what is written down of them, and what never gets out."""

import importlib.util
import time
import traceback
from base64 import b64encode
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import pytest
from anyio.abc import SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import ValidationError
from structlog.testing import capture_logs

from reliq import automations
from reliq.app import Handler
from reliq.automations import mail
from reliq.automations.mail import Mail, Mailer
from reliq.automations.templates import Templates
from reliq.domain.outcome import Done, GiveUp
from reliq.domain.smtp import MailServer, read_mail_url
from reliq.errors import ConfigInvalid, EffectTaken, PermanentError, TemporaryError
from reliq.job import Effect, Job
from reliq.settings import Settings
from tests.fixtures.mailbox import DROP, HOST, Mailbox, certified, open_mailbox

pytestmark = pytest.mark.anyio

PASSWORD = "right/password"
AUTH = b64encode(f"\0shop\0{PASSWORD}".encode()).decode()
ENCODED = "=?utf-8?q?x=0aContent-Type:_text/html=0a=0a<b>?="
"""A word that is decoded by the library, into lines."""
TEXT = "Subject: Order {{ order }} for {{ user }}\n\nHello {{ name }} & all!\n.\nend\n"
ORDER = {"order": 42, "name": "<Ada>"}


class Ledger(dict):
    """The ledger of effects in a dictionary: for each key what is known, and the result."""

    async def once(self, key):
        found, result = self.get(key, ("new", None))
        self[key] = ("unknown", None) if found == "new" else (found, result)

        async def finish(result):
            self[key] = ("done", result)

        async def release():
            del self[key]

        return Effect(key, found, result, finish, release)


class Taken(Ledger):
    async def once(self, key):
        raise EffectTaken("job 8 is at it")


@pytest.fixture
def templates(tmp_path):
    (tmp_path / "receipt.txt").write_text(TEXT)
    (tmp_path / "receipt.html").write_text("<p>Hello {{ name }}</p>{% include 'foot.html' %}")
    (tmp_path / "foot.html").write_text("<i>{{ name }}</i>")
    (tmp_path / "plain.txt").write_text("Subject: {{ subject }}\nHello")
    return tmp_path


def settings(templates, **changes):
    told = {
        "database_url": "postgresql://nowhere/none", "telegram_token": "1:token",
        "alert_chat_id": "-100", "mail_from": "The Shop <shop@example.com>",
        "mail_templates": templates, "mail_url": "smtp+plain://127.0.0.1:1",
    }  # fmt: skip
    return Settings(_env_file=None, **told | changes)


@pytest.fixture
def send(templates):
    """Send a mail through a mailbox, as an attempt does that finds this ledger."""

    async def run(box, ledger=None, *, url="smtp+plain://127.0.0.1:{port}", mail=None, **more):
        made = settings(templates, mail_url=url.format(port=box.port), **more)
        fields = {"to": "ada@example.org", "template": "receipt", "user": 7, "event": "paid"}
        ledger = Ledger() if ledger is None else ledger
        job = Job(
            id=3, kind="mail.send", key="k", payload={}, attempt=1, attempts_max=6, event_id=None,
            _transaction=None, _once=ledger.once,
            data=Mail(**{**fields, "data": ORDER, **(mail or {})}),
        )  # fmt: skip
        with anyio.fail_after(10):
            return await Mailer.of(made).send(job)

    return run


async def test_a_mail_is_rendered_sent_and_written_down(send):
    ledger = Ledger()
    with capture_logs() as logs:
        async with open_mailbox(Mailbox()) as box:
            outcome = await send(box, ledger, mail={"reply_to": "Help <help@example.com>"})

    [mail] = box.seen
    assert box.envelopes == [("shop@example.com", ["ada@example.org"])]
    assert mail["Subject"] == "Order 42 for 7"
    assert mail["From"] == "The Shop <shop@example.com>"
    assert mail["To"] == "ada@example.org"
    assert mail["Reply-To"] == "Help <help@example.com>"
    assert mail["Auto-Submitted"] == "auto-generated"
    plain, html = (mail.get_body([sort]).get_content() for sort in ("plain", "html"))
    assert plain == "Hello <Ada> & all!\n.\nend\n", "a dot on a line of its own ends no mail"
    assert html == "<p>Hello &lt;Ada&gt;</p><i>&lt;Ada&gt;</i>\n"
    assert outcome == Done(ledger["mail:7:receipt:paid"][1])
    result = outcome.result
    assert result["message_id"] == mail["Message-ID"]
    assert result["answer"] == "250 OK queued as 1"
    assert result["template"] == "receipt"
    assert len(result["text"]) == 32
    assert [(log["event"], log["message_id"]) for log in logs] == [
        ("mail.sent", mail["Message-ID"])
    ]
    assert "Ada" not in str(logs)


async def test_what_is_not_ascii_reaches_any_server_as_seven_bits(send):
    async with open_mailbox(Mailbox()) as box:
        await send(box, mail={"data": {"order": "ü", "name": "Zoë"}})

    assert box.raw[0].isascii()
    assert box.seen[0]["Subject"] == "Order ü for 7"
    assert "Zoë" in box.seen[0].get_body(["plain"]).get_content()


async def test_the_message_id_is_that_of_user_template_and_event(send):
    async with open_mailbox(Mailbox()) as box:
        for changes in ({}, {"to": "a@b.cd", "data": {"order": 1, "name": "x"}}, {"user": "7"}):
            await send(box, mail=changes)
        for changes in ({"user": 8}, {"event": "p"}, {"template": "plain", "data": {"subject": 1}}):
            await send(box, mail=changes)

    assert box.ids[0].endswith("@example.com>")
    assert len(set(box.ids[:3])) == 1
    assert len(set(box.ids)) == 4


def test_parts_of_a_key_do_not_run_into_one_another():
    keys = {
        Mail(to="", user=user, template="t", event=event).key
        for user, event in [("a:t", "b"), ("a", "t:b"), ("a%3At", "b"), ("a", "b")]
    }

    assert len(keys) == 4


async def test_a_mail_that_was_sent_is_not_sent_again(send):
    ledger = Ledger()
    async with open_mailbox(Mailbox()) as box:
        first = await send(box, ledger)
        second = await send(box, ledger)

    assert len(box.seen) == 1
    assert second == first


async def test_a_mail_that_another_job_is_at_is_left_to_it(send):
    async with open_mailbox(Mailbox()) as box:
        with pytest.raises(EffectTaken):
            await send(box, Taken())

    assert box.seen == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("550 no such user", PermanentError),
        ("553 what a name", PermanentError),
        ("450 greylisted", TemporaryError),
        ("421 going down", TemporaryError),
        ("530 log in first", TemporaryError),
        ("535 wrong", TemporaryError),
    ],
)
async def test_a_recipient_that_is_refused_leaves_nothing_begun(send, answer, error):
    ledger = Ledger()
    async with open_mailbox(Mailbox(rcpt=[answer])) as box:
        with pytest.raises(error, match="refused the recipient") as raised:
            await send(box, ledger)

    assert raised.value.status == int(answer[:3])
    assert answer[4:] in str(raised.value)
    assert (ledger, box.seen) == ({}, [])


async def test_a_sender_that_is_refused_is_the_operators_to_mend(send):
    async with open_mailbox(Mailbox(sender="550 not from you")) as box:
        with pytest.raises(TemporaryError, match="refused the sender: 550 not from you"):
            await send(box)


@pytest.mark.parametrize(
    ("answer", "error"), [("451 full", TemporaryError), ("554 spam", PermanentError)]
)
async def test_a_text_that_is_refused_was_not_sent_and_is_given_back(send, answer, error):
    ledger = Ledger()
    async with open_mailbox(Mailbox(data=[answer])) as box:
        with pytest.raises(error, match=f"refused the text: {answer}") as raised:
            await send(box, ledger)
        assert ledger == {}
        await send(box, ledger)

    assert raised.value.status == int(answer[:3])
    assert len(box.seen) == 2


async def test_an_answer_that_never_came_leaves_it_unknown_and_the_next_attempt_repeats(send):
    ledger = Ledger()
    async with open_mailbox(Mailbox(data=[DROP])) as box:
        with pytest.raises(TemporaryError, match=r"nobody knows whether the mail <.*> was sent"):
            await send(box, ledger)
        assert ledger == {"mail:7:receipt:paid": ("unknown", None)}
        with capture_logs() as logs:
            await send(box, ledger)
        await send(box, ledger)

    assert len(box.seen) == 2
    assert len(set(box.ids)) == 1
    assert [log["event"] for log in logs] == ["mail.repeated", "mail.sent"]
    assert ledger["mail:7:receipt:paid"][0] == "done"


@pytest.mark.parametrize("answer", ["199 hm", "354 go on", "not SMTP"])
async def test_an_answer_that_says_neither_yes_nor_no_leaves_it_unknown(send, answer):
    ledger = Ledger()
    async with open_mailbox(Mailbox(data=[answer])) as box:
        with pytest.raises(TemporaryError, match="nobody knows"):
            await send(box, ledger)

    assert ledger == {"mail:7:receipt:paid": ("unknown", None)}


async def test_an_unknown_mail_whose_repetition_is_refused_stays_unknown(send):
    ledger = Ledger({"mail:7:receipt:paid": ("unknown", None)})
    async with open_mailbox(Mailbox(data=["451 full"])) as box:
        with capture_logs(), pytest.raises(TemporaryError):
            await send(box, ledger)

    assert ledger == {"mail:7:receipt:paid": ("unknown", None)}


async def test_an_unknown_mail_is_held_for_a_person_where_that_is_wished(send):
    ledger = Ledger({"mail:7:receipt:paid": ("unknown", None)})
    async with open_mailbox(Mailbox()) as box:
        outcome = await send(box, ledger, mail_unknown="hold")
        assert box.seen == []
        assert isinstance(outcome, GiveUp)
        with capture_logs():
            await send(box, ledger, mail_unknown="hold", mail={"repeat": True})

    for part in (box.ids[0], "reliq ignore 3", "reliq.enqueue", '"repeat": true', "id = 3"):
        assert part in outcome.reason
    assert len(box.seen) == 1


async def test_a_word_to_repeat_is_given_back_when_the_text_is_refused(send):
    ledger = Ledger({"mail:7:receipt:paid": ("unknown", None)})
    asked = {"mail_unknown": "hold", "mail": {"repeat": True}}
    async with open_mailbox(Mailbox(data=["451 full", "554 spam", "250 OK"])) as box:
        with capture_logs():
            for refusal in (TemporaryError, PermanentError):
                with pytest.raises(refusal):
                    await send(box, ledger, **asked)
                assert ledger == {"mail:7:receipt:paid": ("unknown", None)}
            await send(box, ledger, **asked)

    assert len(box.seen) == 3
    assert {key: found for key, (found, _) in ledger.items()} == {
        "mail:7:receipt:paid": "done", "mail:7:receipt:paid:repeat:k": "done"
    }  # fmt: skip


async def test_a_word_to_repeat_that_was_used_holds_no_mail_that_is_new(send):
    ledger = Ledger({"mail:7:receipt:paid:repeat:k": ("unknown", None)})
    async with open_mailbox(Mailbox()) as box:
        outcome = await send(box, ledger, mail_unknown="hold", mail={"repeat": True})

    assert isinstance(outcome, Done)
    assert len(box.seen) == 1


@asynccontextmanager
async def silent():
    """A server that takes connections and greets nobody."""

    async def hang(stream):
        async with stream:
            await anyio.sleep_forever()

    async with (
        await anyio.create_tcp_listener(local_host=HOST) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, hang)
        yield Mailbox(port=listener.extra(SocketAttribute.local_port))  # noqa: S610
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("scheme", ["smtp", "smtps", "smtp+plain"])
async def test_a_server_that_does_not_greet_is_left_at_the_deadline(send, scheme):
    ledger = Ledger()
    async with silent() as box:
        with anyio.fail_after(3), pytest.raises(TemporaryError, match=r"within 0\.2 s"):
            await send(box, ledger, url=f"{scheme}://127.0.0.1:{{port}}", mail_timeout="200ms")

    assert ledger == {}


@asynccontextmanager
async def slow(heard, gone):
    """A server that takes its time over every answer."""

    async def talk(stream):
        async with stream:
            lines = BufferedByteReceiveStream(stream)
            with suppress(anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.send(b"220 slow\r\n")
                while True:
                    heard.append(await lines.receive_until(b"\r\n", 1000))
                    await anyio.sleep(0.05)
                    await stream.send(b"250 OK\r\n")
        gone.set()

    async with (
        await anyio.create_tcp_listener(local_host=HOST) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, talk)
        yield Mailbox(port=listener.extra(SocketAttribute.local_port))  # noqa: S610
        tasks.cancel_scope.cancel()


async def test_the_deadline_is_for_all_steps_together_and_nothing_is_said_after_it(send):
    heard, gone = [], anyio.Event()
    async with slow(heard, gone) as box:
        with pytest.raises(TemporaryError, match=r"within 0\.12 s"):
            await send(box, mail_timeout="120ms")
        with anyio.fail_after(10):
            await gone.wait()

    assert b"QUIT" not in heard


async def test_a_text_that_is_not_answered_is_unknown_at_the_deadline(send):
    ledger = Ledger()
    async with open_mailbox(Mailbox(hangs=True)) as box:
        with anyio.fail_after(3), pytest.raises(TemporaryError, match=r"within 0\.3 s.*nobody"):
            await send(box, ledger, mail_timeout="300ms")

    assert ledger == {"mail:7:receipt:paid": ("unknown", None)}


async def test_a_server_that_is_not_there_is_temporary(send):
    async with silent() as box:
        pass

    with pytest.raises(TemporaryError, match=f"the mail server 127.0.0.1:{box.port} did not"):
        await send(box)


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_a_password_goes_over_tls_to_a_server_that_is_trusted(
    send, scheme, tmp_path, monkeypatch
):
    context, trusted = certified(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    box = Mailbox()
    how = {"tls": context} if scheme == "smtps" else {"starttls": context}
    how["auth_require_tls"] = scheme == "smtp"  # aiosmtpd knows of no TLS but its own
    async with open_mailbox(box, **how, authenticator=box.login) as box:
        await send(box, url=f"{scheme}://shop:right%2Fpassword@127.0.0.1:{{port}}")

    assert box.logins == ["shop"]
    assert len(box.seen) == 1
    assert box.over_tls == [True]


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_a_server_that_is_not_trusted_gets_nothing(send, scheme, tmp_path):
    context, _ = certified(tmp_path)
    how = {"tls": context} if scheme == "smtps" else {"starttls": context}
    box = Mailbox()
    async with open_mailbox(box, **how, authenticator=box.login) as box:
        with pytest.raises(TemporaryError, match="certificate"):
            await send(box, url=f"{scheme}://shop:right%2Fpassword@127.0.0.1:{{port}}")

    assert (box.logins, box.seen) == ([], [])


async def test_without_starttls_nothing_is_said_in_clear(send):
    box = Mailbox()
    async with open_mailbox(box, auth_require_tls=False, authenticator=box.login) as box:
        with pytest.raises(TemporaryError, match="STARTTLS"):
            await send(box, url="smtp://shop:right%2Fpassword@127.0.0.1:{port}")

    assert (box.logins, box.seen) == ([], [])


async def test_a_wrong_password_is_the_operators_to_mend_and_in_no_error(send):
    ledger, box, secret = Ledger(), Mailbox(), "wrong-password-of-ours"
    async with open_mailbox(box, auth_require_tls=False, authenticator=box.login) as box:
        with pytest.raises(TemporaryError, match=r"does not let us in \(535\)") as raised:
            await send(box, ledger, url=f"smtp+plain://shop:{secret}@127.0.0.1:{{port}}")

    told = "".join(traceback.format_exception(raised.value))
    assert raised.value.status == 535
    assert raised.value.__context__ is None
    assert secret not in told
    assert ledger == {}


@pytest.mark.parametrize(
    "told",
    [
        f"shop:{PASSWORD}",
        AUTH,
        AUTH.rstrip("="),
        AUTH[:-4],
        b64encode(b"shop").decode(),
        b64encode(PASSWORD.encode()).decode(),
    ],
)
async def test_a_server_that_repeats_our_login_brings_it_into_no_error(send, told):
    box = Mailbox(rcpt=[f"550 {told} may not send"])
    async with open_mailbox(box, auth_require_tls=False, authenticator=box.login) as box:
        with pytest.raises(PermanentError) as raised:
            await send(box, url="smtp+plain://shop:right%2Fpassword@127.0.0.1:{port}")

    said = "".join(traceback.format_exception(raised.value))
    assert "may not send" in said
    assert told.rstrip("=") not in said
    assert PASSWORD not in said


def test_the_password_is_in_no_repr(templates):
    made = settings(templates, mail_url="smtp://shop:right%2Fpassword@mx.test")

    told = f"{made!r}{made.mail_url!r}{Mailer.of(made)!r}{automations.app(made)!r}"
    assert "right" not in told


# Texts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mail", "why"),
    [
        ({"data": {"order": 1}}, "'receipt' cannot be filled in: 'name' is undefined"),
        ({"template": "absent"}, "there is no template .*absent.txt"),
        ({"template": "../receipt"}, "is no name of a template"),
        ({"template": "plain", "data": {"subject": "x\r\nBcc: eve@evil.test"}}, "makes no mail"),
        ({"template": "plain", "data": {"subject": "x\nBcc: eve@evil.test"}}, "makes no mail"),
        ({"template": "plain", "data": {"subject": "Bob\n"}}, "makes no mail"),
        ({"template": "plain", "data": {"subject": ENCODED}}, "makes no mail"),
        ({"to": '"a\tb"@example.org'}, "to is no address"),
        ({"to": "ada@example.org\r\nBcc: eve@evil.test"}, "to is no address"),
        ({"to": "ada@example.org, eve@evil.test"}, "to is no address"),
        ({"to": "ada"}, "to is no address"),
        ({"to": "zoë@example.org"}, "to is no address"),
        ({"to": "ada@exämple.org"}, "to is no address"),
        ({"to": "ada@example.org> SIZE=1"}, "to is no address"),
        ({"to": "A\x07 <ada@example.org>"}, "to is no address"),
        ({"to": "=?utf-8?q?a=0D=0ABcc:x?= <ada@example.org>"}, "to is no address"),
        ({"to": ""}, "to is no address"),
        ({"reply_to": "nobody"}, "reply_to is no address"),
        ({"to": "é" * 500 + " <ada@example.org>"}, "to is longer than 998 bytes, name and all"),
        ({"reply_to": "x" * 1_000}, "reply_to is longer than 998 bytes"),
        ({"to": f"{'a' * 243}@example.org"}, "to is an address of more than 254 bytes"),
        ({"template": "plain", "data": {"subject": "é" * 500}}, "subject is longer than 998 bytes"),
        # What the library's parser stumbles over: one of each sort.
        ({"to": "(" * 990 + "a@b.org"}, "to is no address"),
        ({"to": "\\@\t[\t\t"}, "to is no address"),
        ({"to": ' .@"@=0A>:[>'}, "to is no address"),
        # One that is another, or several, when the header is read.
        ({"to": "=40@ =?utf-8?q?=22=3C=3E==22?= "}, "to is no address"),
        ({"to": "b@\t=?utf-8?q?_=2C=22_?= "}, "to is no address"),
        ({"to": "a.=?utf-8?q?@=?utf-8?q?=2Ca=3C=28==3C?="}, "to is no address"),
        ({"reply_to": '.?==?:\t"utf-8:@](\\('}, "reply_to is no address"),
    ],
)
async def test_what_makes_no_mail_is_permanent_and_asks_no_server(send, mail, why):
    ledger = Ledger()
    async with open_mailbox(Mailbox()) as box:
        with pytest.raises(PermanentError, match=why):
            await send(box, ledger, mail=mail)

    assert (box.seen, ledger) == ([], {})


async def test_a_name_and_a_subject_that_are_endless_hold_up_nobody(send):
    endless, began_s = "é" * 60_000, time.process_time()
    async with open_mailbox(Mailbox()) as box:
        for mail in (
            {"to": f"{endless} <ada@example.org>"},
            {"template": "plain", "data": {"subject": endless}},
        ):
            with pytest.raises(PermanentError, match="is longer than 998 bytes"):
                await send(box, mail=mail)

    assert time.process_time() - began_s < 2


@pytest.mark.parametrize("to", [f"{'a' * 242}@example.org", f"{'é' * 490} <ada@example.org>",
                                "Dr. Ada Q. Lovelace <ada@example.org>"])  # fmt: skip
async def test_the_longest_address_and_names_as_people_write_them_are_sent_to(send, to):
    async with open_mailbox(Mailbox()) as box:
        await send(box, mail={"to": to})

    assert box.envelopes[0][1] == [to.split("<")[-1].rstrip(">")]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("Hello", "does not begin with `Subject: …`"),
        ("Subject: {{ x }\n", "cannot be filled in: unexpected"),
        ("Subject: {{ 1 / 0 }}\n", "cannot be filled in: ZeroDivisionError"),
        ("Subject: x\n{% include 'absent.txt' %}", "cannot be filled in: 'absent.txt' not found"),
    ],
)
def test_a_template_that_is_written_wrong_says_so(tmp_path, source, why):
    (tmp_path / "bad.txt").write_text(source)

    with pytest.raises(PermanentError, match=why):
        Templates(tmp_path).fill("bad", {})


def test_a_template_that_was_changed_is_in_the_next_mail_and_has_another_digest(tmp_path):
    templates, file = Templates(tmp_path), tmp_path / "t.txt"
    file.write_text("Subject: one\n\nHello\n")
    first = templates.fill("t", {})
    file.write_text("Subject: one\n\nHello!\n")
    second = templates.fill("t", {})

    assert (first.subject, first.plain, first.html) == ("one", "Hello\n", None)
    assert second.plain == "Hello!\n"
    assert first.digest != second.digest
    assert second.digest == Templates(tmp_path).fill("t", {}).digest


# Settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtp://mx.test", MailServer(host="mx.test", port=587, security="starttls")),
        ("smtps://mx.test:4465/", MailServer(host="mx.test", port=4465, security="tls")),
        ("smtp+plain://[::1]:25", MailServer(host="::1", port=25, security="plain")),
        (
            "smtp://ada%40x:a%3Ab%2Fc@mx.test",
            MailServer(
                host="mx.test", port=587, security="starttls", user="ada@x", password="a:b/c"
            ),
        ),
    ],
)
def test_the_address_of_a_mail_server_is_read(url, server):
    assert read_mail_url(url) == server


@pytest.mark.parametrize(
    "url",
    [
        "mx.test", "http://mx.test", "smtp://", "smtp://mx.test:0", "smtp://mx.test:65536",
        "smtp://ada@mx.test", "smtp://ada:secret/7@mx.test", "smtp://mx.test\n",
        "smtp+plain://ada:secret7@mx.test",
    ],
)  # fmt: skip
def test_an_address_that_is_wrong_is_refused_and_not_quoted(url, templates):
    with pytest.raises(ValidationError) as raised:
        settings(templates, mail_url=url)

    [problem] = raised.value.errors()
    assert problem["loc"] == ("mail_url",)
    assert "secret7" not in problem["msg"]


def test_without_a_server_nobody_handles_mails(templates):
    app = automations.app(settings(templates, mail_url=None))

    assert "mail.send" not in app.handlers
    assert set(app.needs) == {"telegram_token", "alert_chat_id"}


def test_with_a_server_the_default_app_sends_mails(templates):
    handler = automations.app(settings(templates)).handler("mail.send")

    assert isinstance(handler, Handler)
    assert handler.payload is Mail
    assert handler.retry.attempts_max == 6


def test_what_is_missing_beside_the_server_is_named_and_nobody_handles_mails(templates):
    app = automations.app(settings(None, mail_from=None))

    assert {"mail_from", "mail_templates"} < set(app.needs)
    assert "mail.send" not in app.handlers


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        ({"mail_url": None}, ["RELIQ_MAIL_URL"]),
        ({"mail_from": None, "mail_templates": None}, ["RELIQ_MAIL_FROM", "RELIQ_MAIL_TEMPLATES"]),
    ],
)
def test_an_app_of_ones_own_is_told_of_what_is_missing_and_of_nothing_else(
    templates, told, missing
):
    with pytest.raises(ConfigInvalid) as raised:
        mail.handler(settings(templates, **told))

    assert [each.partition(" is missing: ")[0] for each in raised.value.problems] == missing


@pytest.mark.parametrize("sender", ["shop", "a@b.cd, e@f.gh", "Shop <>", "shöp@example.com"])
def test_a_sender_and_a_folder_that_are_wrong_are_named_at_once(templates, sender):
    with pytest.raises(ConfigInvalid) as raised:
        automations.app(settings(templates / "absent", mail_from=sender))

    assert [problem.partition("=")[0] for problem in raised.value.problems] == [
        "RELIQ_MAIL_FROM", "RELIQ_MAIL_TEMPLATES"
    ]  # fmt: skip


@pytest.mark.parametrize("package", ["aiosmtplib", "jinja2"])
def test_an_extra_that_is_not_installed_is_named(templates, package, monkeypatch):
    found = importlib.util.find_spec
    absent = partial(lambda name: None if name == package else found(name))
    monkeypatch.setattr("reliq.automations.smtp.find_spec", absent)

    with pytest.raises(ConfigInvalid, match=f"needs the package {package}: .* extra `mail`"):
        automations.app(settings(templates))
