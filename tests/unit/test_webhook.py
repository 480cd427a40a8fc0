"""Deliveries of outgoing webhooks, to servers on loopback, by a handler without a database."""

import json
import socket
import threading
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import anyio
import httpx
import pytest
from standardwebhooks import Webhook as Receiver
from structlog.testing import capture_logs

from reliq.automations import webhook
from reliq.automations.outgoing import READ_BYTES_MAX
from reliq.automations.webhook import DATA_BYTES_MAX, Event, Webhook, delivery, target
from reliq.domain.addresses import is_public
from reliq.domain.endpoint import Endpoint
from reliq.domain.job import Fence, NewJob
from reliq.domain.outcome import Done, GiveUp
from reliq.domain.signing import SECRET_BYTES, secret_of
from reliq.errors import PermanentError, StoreUnavailable, TemporaryError
from reliq.job import Job
from reliq.settings import Settings
from reliq.wiring.stores import Stores
from tests.fixtures.partner import Reply, certified, open_partner

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC)  # noqa: TID251 - the receiver's package reads the clock, too
SINCE = datetime(2026, 11, 29, 12, tzinfo=UTC)
OLD, NEW = (secret_of(bytes([n]) * SECRET_BYTES) for n in (1, 2))
PUBLIC = "93.184.216.34"


@pytest.fixture(autouse=True)
def _now(monkeypatch):
    """The receiver's package reads the clock, and a run of all tests takes longer than it forgives."""
    monkeypatch.setitem(globals(), "NOW", datetime.now(UTC))  # noqa: TID251


@dataclass
class Endpoints:
    """One endpoint, and what is said of it."""

    url: str
    secrets: tuple[str, ...] = (NEW,)
    disabled_why: str | None = None
    disables: str | None = None
    told: list[object] = field(default_factory=list)

    async def find(self, name, job_id):
        if name != "shop":
            return None
        return Endpoint(
            name=name, url=self.url, secrets=self.secrets, disabled_why=self.disabled_why, now=NOW,
            enqueued_at=SINCE,
        )  # fmt: skip

    async def delivered(self, endpoint, held):
        self.told.append((endpoint.name, held))

    async def undelivered(self, endpoint, held, *, gone):
        self.told.append((endpoint.name, held, gone))
        return gone or self.disables


def job(endpoints, name="shop", **data):
    event = Event(endpoint=name, type="order.paid", data=data or {"order": 7})
    return Job(
        id=3, kind=webhook.KIND, key="order-7", payload={}, attempt=1, attempts_max=5, event_id=None,
        _transaction=None, _once=None, data=event, fence=Fence(9), _stores=Stores(endpoints=endpoints),
    )  # fmt: skip


PRIVATE = Webhook(private=True, deadline=timedelta(seconds=5), is_allowed=webhook.anywhere)
GUARDED = replace(PRIVATE, private=False, is_allowed=is_public)


async def send(url, *, by=PRIVATE, **endpoint):
    endpoints = Endpoints(url, **endpoint)
    return await by.deliver(job(endpoints)), endpoints


def answering(*addresses):
    """Resolve every name to these, however often it is asked; and keep what was asked."""

    async def resolve(host, port):
        resolve.asked.append((host, port))
        return addresses

    resolve.asked = []
    return resolve


# What is sent -----------------------------------------------------------------------------------


async def test_what_arrives_is_the_event_signed_with_both_secrets_of_a_rotation():
    async with open_partner() as partner:
        done, endpoints = await send(partner.url(), secrets=(NEW, OLD))

    [received] = partner.received
    assert json.loads(received.body) == {
        "type": "order.paid", "timestamp": SINCE.isoformat(), "data": {"order": 7},
    }  # fmt: skip
    for secret in (NEW, OLD):
        Receiver(secret).verify(received.body, received.headers)
    assert received.path == "/hook?token=abcdefgh"
    assert received.headers["host"] == f"127.0.0.1:{partner.port}"
    assert received.headers["content-type"] == "application/json"
    message = received.headers["webhook-id"]
    assert done == Done({"status": 200, "message": message, "address": "127.0.0.1"})
    assert endpoints.told == [("shop", (3, 9))]


async def test_every_attempt_has_the_same_id_and_body_and_a_signature_of_its_own(monkeypatch):
    async with open_partner() as partner:
        await send(partner.url())
        monkeypatch.setitem(globals(), "NOW", NOW + timedelta(seconds=60))
        await send(partner.url())

    first, second = partner.received
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]


async def test_nothing_of_the_environment_or_of_an_earlier_answer_goes_along(monkeypatch, tmp_path):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login u password p\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with open_partner(Reply(headers={"set-cookie": "a=b"})) as partner:
        await send(partner.url())
        await send(partner.url())

    assert partner.connections == 2
    told = {"host", "user-agent", "content-type", "content-length", "accept", "accept-encoding",
            "connection", "webhook-id", "webhook-timestamp", "webhook-signature"}  # fmt: skip
    assert [set(each.headers) for each in partner.received] == [told, told]


# Where to ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", ["127.0.0.1", "10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1"]
)
async def test_of_a_name_every_address_must_be_public(bad):
    async with open_partner() as partner:
        resolve = answering(PUBLIC, bad)
        guarded = replace(GUARDED, resolve=resolve)
        with pytest.raises(
            PermanentError, match=f"the endpoint shop is at {bad}, which is no public"
        ):
            await send("https://partner.test/hook", by=guarded)

    assert resolve.asked == [("partner.test", 443)]
    assert partner.connections == 0


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f.1", "127.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"]
)
async def test_an_address_in_disguise_is_found_out_when_it_is_looked_up(host):
    with pytest.raises(PermanentError, match="no public address"):
        await send(f"https://{host}/", by=GUARDED)


async def test_the_address_that_was_checked_is_the_one_that_is_called():
    """The name leads elsewhere as soon as it is asked for again."""
    async with (
        open_partner() as partner,
        open_partner(host="127.0.0.2", port=partner.port) as inside,
    ):
        answers = iter([["127.0.0.1"], ["127.0.0.2"]])

        async def resolve(host, port):
            return next(answers)

        rebinding = replace(PRIVATE, resolve=resolve)
        await send(partner.url("rebinds.test"), by=rebinding)

    assert (len(partner.received), inside.connections) == (1, 0)
    assert partner.received[0].headers["host"] == f"rebinds.test:{partner.port}"
    assert list(answers) == [["127.0.0.2"]]


async def test_the_name_is_looked_up_and_checked_again_at_every_attempt():
    seen = []
    async with open_partner() as partner:
        answers = iter([["127.0.0.1"], ["127.0.0.2"]])

        async def resolve(host, port):
            return next(answers)

        def is_allowed(address):
            seen.append(address)
            return address == "127.0.0.1"

        checking = replace(PRIVATE, resolve=resolve, is_allowed=is_allowed)
        await send(partner.url("rebinds.test"), by=checking)
        with pytest.raises(PermanentError, match="no public address"):
            await send(partner.url("rebinds.test"), by=checking)

    assert (seen, partner.connections) == (["127.0.0.1", "127.0.0.2"], 1)


async def test_an_address_that_refuses_the_connection_is_passed_over():
    async with open_partner() as partner:
        done, _ = await send(
            partner.url("two.test"),
            by=replace(PRIVATE, resolve=answering("127.0.0.9", "127.0.0.1")),
        )

    assert done.result["address"] == "127.0.0.1"


@pytest.mark.parametrize(
    "url",
    ["http://partner.test/", "https://partner.test:8443/", "https://u:p@partner.test/",
     "https://partner.test/#a", "ftp://partner.test/", "https:///hook", "partner.test", "https://[::1",
     "file:///etc/passwd", "https://partner.test:99999/", ""],
)  # fmt: skip
async def test_an_address_that_may_not_be_called_is_refused_and_not_quoted(url):
    with pytest.raises(PermanentError) as refused:
        target(url, private=False)
    assert not url or url not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["https://partner.test/a?b", "https://partner.test:443/", "https://ü.test/"]
)
async def test_an_address_of_https_at_its_port_may_be_called(url):
    assert target(url, private=False).scheme == "https"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.7", "169.254.169.254", "127.1", "0x7f000001", "2130706433", "[::1]",
     "[::ffff:10.0.0.7]", "[64:ff9b::a00:7]", "localhost", "LOCALHOST"],
)  # fmt: skip
async def test_an_address_that_is_not_public_is_refused_before_anything_is_sent_there(host):
    with pytest.raises(PermanentError, match="at no public address"):
        webhook.check_target(f"https://{host}/hook", private=False)
    webhook.check_target(f"http://{host}:8080/hook", private=True)


@pytest.mark.parametrize("host", ["8.8.8.8", "[2606:4700::1111]", "partner.test", "ü.test"])
async def test_a_name_or_a_public_address_may_be_added(host):
    webhook.check_target(f"https://{host}/hook", private=False)


@pytest.mark.parametrize("host", ["a..test", "a" * 64 + ".test", "a b.test", "[fe80::1%25eth0]"])
@pytest.mark.parametrize("private", [True, False])
async def test_what_is_neither_a_name_nor_an_address_is_refused(host, private):
    with pytest.raises(PermanentError, match="neither a name nor an address"):
        webhook.check_target(f"https://{host}/hook", private=private)


@pytest.mark.parametrize("port", [0, 65_536, 99_999])
async def test_a_port_that_there_is_not_is_refused(port):
    with pytest.raises(PermanentError, match="they go from 1 to 65535"):
        target(f"http://127.0.0.1:{port}/", private=True)


# TLS --------------------------------------------------------------------------------------------


async def test_the_certificate_is_checked_for_the_name_though_an_address_is_called(tmp_path):
    tls = certified("partner.test", tmp_path)

    def client(_):
        return httpx.AsyncClient(verify=tls.client, trust_env=False)

    by = replace(PRIVATE, resolve=answering("127.0.0.1"), client=client)
    async with open_partner(tls=tls.server) as partner:
        await send(partner.url("partner.test"), by=by)
        with pytest.raises(TemporaryError, match="certificate: Hostname mismatch"):
            await send(partner.url("other.test"), by=by)
        with pytest.raises(TemporaryError, match="certificate: self-signed certificate"):
            await send(partner.url("partner.test"), by=replace(by, client=webhook.opened))

    assert [each.headers["host"] for each in partner.received] == [f"partner.test:{partner.port}"]


# What comes back --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_every_2xx_is_a_success(status):
    async with open_partner(Reply(status, body=b"")) as partner:
        done, _ = await send(partner.url())

    assert done.result["status"] == status


async def test_a_redirect_is_a_failure_and_its_target_is_never_called():
    async with open_partner() as inside:
        reply = Reply(302, {"location": inside.url("127.0.0.1", "/internal")})
        async with open_partner(reply) as partner:
            with pytest.raises(
                PermanentError, match="answered 302, a redirect, which is not followed"
            ):
                await send(partner.url())

    assert inside.connections == 0


async def test_one_that_is_gone_is_told_of_and_the_job_says_that_it_is_disabled():
    async with open_partner(Reply(410)) as partner:
        endpoints = Endpoints(partner.url())
        with pytest.raises(
            PermanentError, match="disabled: it answered 410; `reliq endpoint enable shop`"
        ):
            await PRIVATE.deliver(job(endpoints))

    assert endpoints.told == [("shop", (3, 9), "it answered 410")]


@pytest.mark.parametrize(
    ("status", "ends"), [(204, Done), (410, PermanentError), (503, TemporaryError)]
)
async def test_what_an_endpoint_answered_counts_though_it_cannot_be_noted(status, ends):
    class Away(Endpoints):
        async def delivered(self, endpoint, held):
            raise StoreUnavailable("the database is away")

        async def undelivered(self, endpoint, held, *, gone):
            raise StoreUnavailable("the database is away")

    async with open_partner(Reply(status)) as partner:
        with capture_logs() as logs:
            try:
                ending = await PRIVATE.deliver(job(Away(partner.url())))
            except (PermanentError, TemporaryError) as error:
                ending = error

    assert type(ending) is ends
    assert [line["event"] for line in logs] == ["endpoint.not_noted"]


async def test_one_that_failed_for_too_long_is_permanent_whatever_it_answers():
    async with open_partner(Reply(503)) as partner:
        with pytest.raises(PermanentError, match=r"503.*disabled: since Monday") as error:
            await send(partner.url(), disables="since Monday")

    assert error.value.status == 503


async def test_a_pause_that_is_asked_for_is_passed_on():
    async with open_partner(Reply(429, {"retry-after": "77"})) as partner:
        with pytest.raises(TemporaryError) as error:
            await send(partner.url())

    assert (error.value.status, error.value.after) == (429, timedelta(seconds=77))


async def test_an_attempt_without_an_answer_ends_at_its_deadline():
    async with open_partner(Reply(hangs=True)) as partner:
        with (
            anyio.fail_after(5),
            pytest.raises(TemporaryError, match=r"did not answer \(within 0.3 s\)"),
        ):
            await send(partner.url(), by=replace(PRIVATE, deadline=timedelta(seconds=0.3)))


@pytest.mark.parametrize(
    "more",
    [
        {"body": b"x" * 1_000, "pause_s": 0.05},
        {"body": b"x", "pause_s": 0.05, "endless": True},
        {"body": b"x", "headers": {"content-length": "10"}},
        {"body": b"x", "headers": {"transfer-encoding": "chunked"}},
    ],
    ids=["drips", "drips for ever", "breaks off", "is no chunk"],
)
@pytest.mark.parametrize("status", [200, 410, 429])
async def test_the_status_counts_whatever_becomes_of_the_body(status, more):
    headers = {"retry-after": "77", **more.get("headers", {})}
    reply = Reply(status, **{**more, "headers": headers})
    async with open_partner(reply) as partner:
        with anyio.fail_after(5):
            try:
                found = await send(
                    partner.url(), by=replace(PRIVATE, deadline=timedelta(seconds=0.3))
                )
            except (PermanentError, TemporaryError) as error:
                found = error

    match status:
        case 200:
            assert found[0].result["status"] == 200
        case 410:
            assert (type(found), found.status) == (PermanentError, 410)
        case 429:
            assert (found.status, found.after) == (429, timedelta(seconds=77))


async def test_a_redirect_to_what_is_no_address_is_permanent_as_others_are():
    async with open_partner(Reply(302, {"location": "http://[::1"})) as partner:
        with pytest.raises(PermanentError, match="answered 302, a redirect") as error:
            await PRIVATE.deliver(job(Endpoints(partner.url())))

    assert error.value.status == 302


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/services/T0AB12/B0CD34/s3cr3t?k=abcdef", "Cannot POST {path}"),
        ("/services/T0AB12/B0CD34/s3cr3t?k=abcdef&x=1", "no {path_html} here"),
        ("/hook?token=T0KEN%2Babcdefgh%3Ds3cr3t", "no token T0KEN+abcdefgh=s3cr3t"),
        ("/hook?key=aB1/cD2/s3cr3t", "bad key aB1/cD2/s3cr3t"),
        ("/h%C3%BCte-s3cr3t/x", "no hüte-s3cr3t"),
        ("/t/s3cr3t1/x", r'{{"path": "\/t\/s3cr3t1\/x"}}'),
        ("/T/S3CR3Tabc", "no /t/s3cr3tabc"),
        ("/hooks/acme-shop?k=acme-shop-s3cr3t", "no acme-shop-s3cr3t"),
        ("/t/a-s3cr3t-that-is-long", "no a-s3cr3t-that-..."),
        ("/t/s3cr3t=abcdef", "no s3cr3t&#x3D;abcdef"),
    ],
)
async def test_an_answer_that_quotes_the_address_tells_nobody_of_it(path, said):
    text = said.format(path=path, path_html=path.replace("&", "&amp;"))
    async with open_partner(Reply(404, body=text.encode())) as partner:
        with pytest.raises(PermanentError, match="404") as error:
            await send(partner.url(path=path))

    assert "s3cr3t" not in str(error.value).casefold()


async def test_a_name_server_that_is_silent_holds_up_its_own_names_only(monkeypatch):
    ends, asked = threading.Event(), []

    def getaddrinfo(host, port, **_):
        if host.startswith("silent"):
            asked.append(host)
            ends.wait(30)
        return [(0, 0, 0, "", (PUBLIC, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def ask(name):
        with anyio.move_on_after(0.1):
            await webhook.looked_up(name, 443)

    try:
        async with anyio.create_task_group() as tasks:
            for n in range(60):
                tasks.start_soon(ask, f"silent{n % 10}.test")
        with anyio.fail_after(5):
            assert await webhook.looked_up("shop.test", 443) == [PUBLIC]
        assert len(asked) == 10 * webhook.ASKING_MAX
    finally:
        ends.set()

    await nobody_asks()


async def nobody_asks():
    with anyio.fail_after(5):
        while webhook._asking:
            await anyio.sleep(0.01)


async def test_many_endpoints_at_one_name_wait_for_each_other(monkeypatch):
    def getaddrinfo(host, port, **_):
        time.sleep(0.05)
        return [(0, 0, 0, "", (PUBLIC, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    found = []

    async def ask():
        found.append(await webhook.looked_up("shared.test", 443))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(5 * webhook.ASKING_MAX):
                tasks.start_soon(ask)

    assert found == [[PUBLIC]] * (5 * webhook.ASKING_MAX)


async def test_who_goes_before_his_question_is_asked_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: [(0, 0, 0, "", (PUBLIC, 0))])

    async def ask(scope):
        with scope:
            await webhook.looked_up("shop.test", 443)

    for _ in range(20):
        async with anyio.create_task_group() as tasks:
            scopes = [anyio.CancelScope() for _ in range(2 * webhook.ASKING_MAX)]
            for scope in scopes:
                tasks.start_soon(ask, scope)
                scope.cancel()
    await nobody_asks()

    assert await webhook.looked_up("shop.test", 443) == [PUBLIC]


async def test_a_name_that_is_looked_up_for_too_long_is_given_up():
    async def resolve(host, port):
        await anyio.sleep_forever()

    with anyio.fail_after(5), pytest.raises(TemporaryError, match=r"within 0.1 s"):
        await send(
            "https://partner.test/",
            by=replace(PRIVATE, resolve=resolve, deadline=timedelta(seconds=0.1)),
        )


async def test_of_an_endless_answer_little_is_read():
    async with open_partner(Reply(endless=True, body=b"x" * 1_000)) as partner:
        with anyio.fail_after(5):
            done, _ = await send(partner.url())

    assert done.result["status"] == 200
    assert partner.sent < READ_BYTES_MAX + 8 * 1024 * 1024  # what sockets hold


async def test_an_answer_that_would_unpack_to_much_is_not_unpacked():
    async with open_partner(Reply(500, {"content-encoding": "gzip"}, b"no gzip")) as partner:
        with pytest.raises(TemporaryError, match="answered 500: no gzip"):
            await send(partner.url())


async def test_no_error_holds_the_address_or_its_token():
    await_error = partial(pytest.raises, TemporaryError)
    with await_error() as refused:
        await send("http://127.0.0.1:1/hook?token=abcdefgh")
    with await_error() as unknown:
        await send("http://nobody.invalid/hook?token=abcdefgh")

    for error in (refused.value, unknown.value):
        assert "abcdefgh" not in repr((error, error.__cause__, str(error)))


# Who it is for ----------------------------------------------------------------------------------


async def test_a_job_of_an_endpoint_that_is_unknown_or_disabled_is_given_up_with_what_to_do():
    async with open_partner() as partner:
        unknown = await PRIVATE.deliver(job(Endpoints(partner.url()), "other"))
        disabled, _ = await send(partner.url(), disabled_why="it answered 410")

    assert partner.connections == 0
    assert unknown == GiveUp(
        "there is no endpoint 'other': `reliq endpoint add`, then `reliq retry 3`"
    )
    assert disabled == GiveUp(
        "the endpoint shop is disabled (it answered 410): `reliq endpoint enable shop`, then `reliq retry 3`"
    )


@pytest.mark.parametrize(("private", "may"), [(False, is_public), (True, webhook.anywhere)])
def test_the_settings_say_where_to_and_for_how_long(private, may):
    settings = Settings(
        _env_file=None, database_url="postgresql://nowhere/none", webhook_private=private,
        webhook_timeout=timedelta(seconds=7),
    )  # fmt: skip
    made = webhook.handler(settings)
    by = made.run.__self__

    assert (by.private, by.deadline, by.is_allowed) == (private, timedelta(seconds=7), may)
    assert made.time_limit == timedelta(seconds=22)
    assert [pause.total_seconds() for pause in made.retry.pauses] == [60, 300, 1800, 7200]


def test_a_delivery_is_a_job_of_its_endpoints_own_queue():
    assert delivery("shop", "order.paid", {"order": 7}, key="k") == NewJob(
        kind="webhook.deliver", queue="webhook:shop", key="shop:k",
        payload={"endpoint": "shop", "type": "order.paid", "data": {"order": 7}},
    )  # fmt: skip
    assert delivery("shop", "order.paid", None, ordered=True).group_key == "webhook:shop"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"endpoint": "The Shop"}, "the name of an endpoint"),
        ({"endpoint": "x" * 64}, "the name of an endpoint"),
        ({"event_type": ""}, "the type of an event"),
        ({"event_type": "a\n"}, "the type of an event"),
        ({"data": {1, 2}}, "is not JSON"),
        ({"data": float("nan")}, "is not JSON"),
        ({"data": "x" * DATA_BYTES_MAX}, "at most 20000 bytes"),
    ],
)
def test_a_delivery_that_could_never_be_made_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        delivery(**{"endpoint": "shop", "event_type": "order.paid", "data": {}} | wrong)
