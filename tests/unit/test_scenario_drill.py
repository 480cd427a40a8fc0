import json
import os
import signal
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import httpx
import pytest
import respx
import structlog
from pydantic import SecretStr

from reliq.automations import drill
from reliq.automations.mail import Mail
from reliq.domain.event import Delivery
from reliq.domain.family import Family
from reliq.domain.job import DuplicateOf, NewJob
from reliq.errors import PermanentError, TemporaryError
from reliq.job import Job
from reliq.settings import Settings

pytestmark = pytest.mark.anyio

URL = "http://upstream.test/"


def drilling(http: httpx.AsyncClient | None = None, *points: str) -> drill.Drill:
    return drill.Drill(http=http, deadline_s=5.0, points=frozenset(points))


def job(kind: str, **payload: object) -> Job:
    return Job(
        id=7, kind=kind, key="event:1:call:1", payload={"url": URL, **payload}, attempt=2,
        attempts_max=3, event_id=1, _transaction=lambda: None, _once=None,
    )  # fmt: skip


def delivery(body: bytes) -> Delivery:
    return Delivery(source="drill", headers=(), body=body)


def test_a_delivery_names_its_jobs_and_itself():
    told = delivery(b'{"id": "evt-1", "jobs": [{"kind": "drill.call", "payload": {"url": "x"}}]}')

    [made] = drill.route(told)

    assert (made.kind, made.payload) == ("drill.call", {"url": "x"})
    assert drill.dedup_key(told) == "evt-1"


@respx.mock
async def test_a_call_carries_the_key_and_the_same_body_at_every_attempt():
    route = respx.post(URL).respond(200)
    async with httpx.AsyncClient() as http:
        first, second = job("drill.call"), job("drill.call")
        second.attempt = 3
        await drill.call(drilling(http), first)
        await drill.call(drilling(http), second)

    requests = [call.request for call in route.calls]
    assert {request.headers["idempotency-key"] for request in requests} == {"event:1:call:1"}
    assert len({request.content for request in requests}) == 1
    assert [request.headers["drill-attempt"] for request in requests] == ["2", "3"]


@respx.mock
@pytest.mark.parametrize(("status", "error"), [(502, TemporaryError), (400, PermanentError)])
async def test_a_call_fails_as_the_upstream_says(status, error):
    respx.post(URL).respond(status)
    async with httpx.AsyncClient() as http:
        with pytest.raises(error):
            await drill.call(drilling(http), job("drill.call"))


async def test_a_failure_is_of_the_sort_that_was_asked_for():
    with pytest.raises(TemporaryError):
        await drill.fail(drilling(), job("drill.fail"))
    with pytest.raises(PermanentError):
        await drill.fail(drilling(), job("drill.fail", permanent=True))


def job_that_writes_into(written: list, kind: str) -> Job:
    @asynccontextmanager
    async def transaction(_):
        async def execute(statement, *arguments):
            await anyio.lowlevel.checkpoint()
            written.append(arguments)

        yield SimpleNamespace(execute=execute)

    writing = job(kind)
    writing._transaction = transaction
    return writing


async def test_a_write_goes_through_the_transaction_of_the_job():
    written = []

    await drill.write(drilling(), job_that_writes_into(written, "drill.write"))

    assert written == [(7, "event:1:call:1", 2)]


async def test_a_family_is_made_in_the_transaction_of_the_job():
    made = []

    async def fan_out(transaction, job_id, family):
        await transaction.execute("", job_id)
        made.append(family)

    parent = job_that_writes_into(written := [], "drill.family")
    parent._fan_out = fan_out
    parent.payload = {
        "jobs": [{"kind": "drill.noop", "copies": 2}, {"kind": "drill.sleep", "payload": {"s": 1}}],
        "then": {"kind": "drill.tick"}, "on_failure": "continue",
    }  # fmt: skip
    await drill.family(drilling(), parent)

    assert written == [(7,)]
    noop, sleep = NewJob(kind="drill.noop"), NewJob(kind="drill.sleep", payload={"s": 1})
    then = NewJob(kind="drill.tick")
    assert made == [Family(children=[noop, noop, sleep], then=then, on_failure="continue")]


@pytest.mark.parametrize("fails", [0, 2])
async def test_a_job_is_placed_in_the_transaction_of_the_job(monkeypatch, fails):
    asked = []

    async def enqueue(transaction, kind, payload, **keys):
        await transaction.execute("", kind)
        asked.append((kind, payload, keys))
        return DuplicateOf(8)

    monkeypatch.setattr(drill, "enqueue", enqueue)
    placing = job_that_writes_into(written := [], "drill.place")
    placing.payload = {"job": {"kind": "drill.write", "key": "a", "group": "g"}, "fails": fails}

    ends = pytest.raises(TemporaryError) if fails else nullcontext()
    with structlog.testing.capture_logs() as said, ends:
        await drill.place(drilling(), placing)

    assert written == [("drill.write",)]
    assert asked == [("drill.write", {}, {"key": "a", "group_key": "g"})]
    assert [(line["made"], line["duplicate"], line["key"]) for line in said] == [(8, True, "a")]


@respx.mock
async def test_a_call_from_a_process_of_its_own_names_the_worker():
    route = respx.post(URL).respond(200)
    async with httpx.AsyncClient() as http:
        await drill.call(drilling(http), job("drill.apart.call"))

    assert route.calls[0].request.headers["drill-process"] == str(os.getppid())


def test_what_runs_apart_is_isolated_and_nothing_else(monkeypatch):
    monkeypatch.setenv("DRILL_POLICIES", "{}")
    settings = SimpleNamespace(time_limit=timedelta(seconds=5), mail_url=None, alert_url=None)
    handlers = drill.app(settings).handlers

    apart = {kind for kind, handler in handlers.items() if handler.isolated}
    assert apart == {f"drill.apart.{name}" for name in ("call", "sleep", "exit", "crash", "hog")}


@pytest.mark.parametrize("url", [None, "smtp+plain://127.0.0.1:25"])
def test_mails_are_sent_where_there_is_a_mail_server(monkeypatch, tmp_path, url):
    monkeypatch.setenv("DRILL_POLICIES", "{}")
    settings = Settings(
        _env_file=None, database_url="postgresql://nowhere/none", mail_url=url,
        mail_from="shop@drill.test", mail_templates=tmp_path,
    )  # fmt: skip
    app = drill.app(settings)

    assert ("drill.mail" in app.handlers) == (url is not None)
    assert url is None or app.handler("drill.mail").payload is Mail


@respx.mock
async def test_an_alert_is_sent_as_the_product_does_and_says_who_sends_it(monkeypatch):
    monkeypatch.setenv("DRILL_POLICIES", "{}")
    heard = respx.post(f"{URL}alerts").respond(200)
    url = SecretStr(f"{URL}alerts")
    app = drill.app(SimpleNamespace(time_limit=timedelta(seconds=5), mail_url=None, alert_url=url))

    await app.handler("alert").run(job("alert", text="all well"))

    [call] = heard.calls
    assert json.loads(call.request.content)["text"] == "all well"
    assert call.request.headers["drill-job"] == str(job("alert").id)
    assert call.request.headers["drill-process"] == str(os.getpid())


@respx.mock
async def test_a_stubborn_job_calls_and_writes_although_it_is_told_to_stop():
    route, written = respx.post(URL).respond(200), []
    async with httpx.AsyncClient() as http:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await drill.stubborn(drilling(http), job_that_writes_into(written, "drill.stubborn"))

    assert route.call_count == 1
    assert written == [(7, "event:1:call:1", 2)]


async def test_a_handler_says_when_it_begins_and_how_it_ends():
    with structlog.testing.capture_logs() as said:
        with pytest.raises(TemporaryError):
            await drill.told(drilling(), drill.fail, job("drill.fail"))
        await drill.told(drilling(), drill.noop, job("drill.noop"))

    assert [(line["event"], line.get("how")) for line in said] == [
        ("drill.started", None), ("drill.ended", "raised"),
        ("drill.started", None), ("drill.ended", "done"),
    ]  # fmt: skip
    assert {(line["job_id"], line["attempt"]) for line in said} == {(7, 2)}


async def test_a_process_halts_at_a_point_that_somebody_waits_for(monkeypatch):
    halted = []
    monkeypatch.setattr(os, "kill", lambda pid, sig: halted.append((pid, sig)))

    with structlog.testing.capture_logs():
        await drill.told(drilling(None, "started", "elsewhere"), drill.noop, job("drill.noop"))

    assert halted == [(os.getpid(), signal.SIGSTOP)]


def test_a_pulse_has_a_slot_every_so_many_seconds():
    pulse = drill.Pulse(0.5)
    noon = datetime(2026, 11, 29, 12, tzinfo=UTC)

    assert pulse.between(noon, noon) == []
    assert pulse.between(noon, noon + timedelta(seconds=1)) == [
        noon + timedelta(seconds=0.5), noon + timedelta(seconds=1),
    ]  # fmt: skip
    assert pulse.most(timedelta(seconds=10)) >= 20
