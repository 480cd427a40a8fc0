"""The intake: verified, parsed and stored, or refused, as values."""

import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from reliq.app import App, Handler, Source
from reliq.domain.event import Delivery, Duplicate, Stored
from reliq.domain.job import NewJob
from reliq.domain.policy import URGENT
from reliq.domain.signature import GITHUB, SITE, TELEGRAM, Refused
from reliq.errors import ConfigInvalid, SchemaMismatch, StoreUnavailable
from reliq.receiver.accept import THREAD_BYTES, Away, Intake, kept, parse

pytestmark = pytest.mark.anyio

SECRET = b"correct horse"


class Remembering:
    """An inbox that takes everything."""

    def __init__(self):
        self.events = []

    async def store_event(self, event):
        self.events.append(event)
        return Stored(len(self.events), len(event.jobs))


class Knowing:
    async def store_event(self, event):
        return Duplicate(7)


class Failing:
    def __init__(self, error):
        self.error = error

    async def store_event(self, event):
        raise self.error


def one_job(delivery):
    return [NewJob(kind="demo", payload={"n": delivery.json()["n"]})]


def raising(_):
    raise KeyError("n")


def source(**changes):
    return Source(**{"signature": SITE, "route": one_job, **changes})


def intake(inbox, bell=lambda: None, **changes):
    app = App(sources={"demo": source(**changes)})
    return Intake.of(app, secrets={"demo": [SECRET]}, inbox=inbox, body_max=100, bell=bell)


def delivery(body=b'{"n": 1}', *, signature=None, headers=()):
    proof = signature or hmac.new(SECRET, body, hashlib.sha256).hexdigest().encode()
    return Delivery(source="demo", headers=[(b"x-signature", proof), *headers], body=body)


@dataclass(frozen=True)
class Numbered:
    n: int


@pytest.mark.parametrize(("body", "stored"), [(b'{"n": 1}', 1), (b'{"n": "one"}', 0)])
async def test_the_jobs_of_a_route_fit_their_kind_or_the_event_waits_to_be_replayed(body, stored):
    inbox = Remembering()
    app = App(
        sources={"demo": source()},
        handlers={"demo": Handler(print, policy=URGENT, payload=Numbered)},
    )
    way_in = Intake.of(app, secrets={"demo": [SECRET]}, inbox=inbox, body_max=100)

    assert await way_in.accept(delivery(body)) == Stored(1, stored)
    [event] = inbox.events
    assert [job.priority for job in event.jobs] == [URGENT.priority] * stored
    assert ("n is wrong" in (event.parse_error or "")) is not bool(stored)


async def test_a_genuine_delivery_is_stored_with_its_jobs():
    inbox = Remembering()

    answer = await intake(inbox, dedup_key=lambda _: "k").accept(delivery())

    assert answer == Stored(1, 1)
    [event] = inbox.events
    assert (event.source, event.dedup_key, event.body) == ("demo", "k", b'{"n": 1}')
    assert [job.payload for job in event.jobs] == [{"n": 1}]
    assert event.parse_error is None


async def test_a_forged_delivery_never_reaches_the_sources_code_or_the_store():
    inbox, seen = Remembering(), []

    answer = await intake(inbox, route=seen.append, dedup_key=seen.append).accept(
        delivery(signature=b"0" * 64)
    )

    assert answer == Refused("mismatch")
    assert (inbox.events, seen) == ([], [])


@pytest.mark.parametrize(
    "route",
    [
        raising,
        lambda _: None,
        lambda _: ["no job"],
        lambda _: [NewJob(kind="")],
        lambda _: [NewJob(kind="nul\0")],
        lambda _: [NewJob(kind="k" * 300)],
        lambda _: [NewJob(kind=7)],
        lambda _: [NewJob(kind="demo", payload={"at": timedelta(1)})],
        lambda _: [NewJob(kind="demo", payload={"n": float("nan")})],
        lambda _: [NewJob(kind="demo", payload=[1])],
        lambda _: [NewJob(kind="demo", key=7)],
        lambda _: [NewJob(kind="demo", key="event:370:demo:1")],
        lambda _: [NewJob(kind="demo", priority=10)],
        lambda _: [NewJob(kind="demo", queue="")],
        lambda _: [NewJob(kind="demo", run_in=timedelta(seconds=-1))],
        lambda _: [NewJob(kind="demo", run_in=timedelta.max)],
        lambda _: (NewJob(kind="demo") for _ in [1 / 0]),
    ],
)
async def test_an_event_that_cannot_be_read_is_stored_without_jobs_under_its_key(route):
    inbox = Remembering()

    with capture_logs() as logs:
        answer = await intake(inbox, dedup_key=lambda _: "k", route=route).accept(delivery())

    assert answer == Stored(1, 0)
    [event] = inbox.events
    assert (event.dedup_key, event.jobs) == ("k", ())
    assert event.parse_error
    assert [log["event"] for log in logs] == ["delivery.unreadable"]


@pytest.mark.parametrize("key", [raising, lambda _: 7, lambda _: b"k"])
async def test_an_event_whose_key_cannot_be_read_is_stored_without_key_and_jobs(key):
    inbox = Remembering()

    await intake(inbox, dedup_key=key).accept(delivery())

    [event] = inbox.events
    assert (event.dedup_key, event.jobs) == (None, ())
    assert event.parse_error


def test_an_empty_key_is_none_because_it_would_make_one_event_of_all():
    assert parse(source(dedup_key=lambda _: ""), delivery()).dedup_key is None


def test_one_bad_job_makes_none_so_that_a_replay_makes_all():
    mixed = [NewJob(kind="good"), NewJob(kind="")]

    parsed = parse(source(route=lambda _: mixed), delivery())

    assert parsed.jobs == ()
    assert "kind" in parsed.error


async def test_a_body_nested_without_end_is_unreadable_and_stored():
    inbox, body = Remembering(), b"[" * 200_000

    answer = await intake(inbox).accept(delivery(body))

    assert answer == Stored(1, 0)
    assert inbox.events[0].body == body


async def test_a_large_body_is_read_in_a_thread_with_the_same_result():
    inbox, body = Remembering(), json.dumps({"n": 1, "pad": "x" * THREAD_BYTES}).encode()

    assert await intake(inbox).accept(delivery(body)) == Stored(1, 1)
    assert await intake(inbox).accept(delivery(body, signature=b"0" * 64)) == Refused("mismatch")


@pytest.mark.parametrize("error", [StoreUnavailable("away"), SchemaMismatch("old")])
async def test_what_cannot_be_stored_is_answered_as_away_and_logged(error):
    with capture_logs() as logs:
        answer = await intake(Failing(error)).accept(delivery())

    assert answer == Away()
    assert [log["event"] for log in logs] == ["delivery.not_stored"]


async def test_the_bell_rings_after_a_commit_with_jobs_and_at_no_other_time():
    rings = []

    def ring():
        rings.append(1)

    await intake(Remembering(), ring, route=lambda _: []).accept(delivery())
    await intake(Knowing(), ring).accept(delivery())
    await intake(Failing(StoreUnavailable("away")), ring).accept(delivery())
    await intake(Remembering(), ring).accept(delivery(signature=b"0" * 64))
    assert rings == []

    await intake(Remembering(), ring).accept(delivery())
    assert rings == [1]


def test_headers_are_stored_by_name_and_repeated_ones_are_joined():
    headers = [(b"content-type", b"text/plain"), (b"x-trace", b"a"), (b"x-trace", b" b "),
               (b"x-other", b"c"), (b"user-agent", b"caf\xe9")]  # fmt: skip

    stored = kept(source(headers_kept=frozenset({"X-Trace"})), delivery(headers=headers))

    assert stored == {"content-type": "text/plain", "user-agent": "café", "x-trace": "a, b"}


@pytest.mark.parametrize("scheme", [SITE, GITHUB, TELEGRAM])
def test_a_secret_is_not_stored_even_where_a_source_asks_for_it(scheme):
    names = frozenset({scheme.header, "Authorization", "Cookie", "Proxy-Authorization"})
    headers = [(name.lower().encode(), b"secret") for name in names]

    asked = source(signature=scheme, headers_kept=names)

    assert kept(asked, Delivery(source="demo", headers=headers, body=b"")) == {}


@pytest.mark.parametrize("secrets", [{}, {"demo": []}, {"demo": [b" "]}, {"demo": [b"x\n"]}])
def test_a_source_without_a_usable_secret_stops_the_start(secrets):
    app = App(sources={"demo": source()})

    with pytest.raises(ConfigInvalid, match="'demo'"):
        Intake.of(app, secrets=secrets, inbox=Remembering(), body_max=1)
