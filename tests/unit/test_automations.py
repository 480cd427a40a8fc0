"""The bundled App: what its sources make of deliveries, and that its handlers may run twice."""

import base64
import json
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from reliq import automations
from reliq.app import App
from reliq.automations.site_form import FIELDS_MAX, VALUE_MAX
from reliq.domain.event import Delivery
from reliq.domain.job import NewJob
from reliq.domain.when import Every
from reliq.errors import PermanentError
from reliq.job import Job
from reliq.receiver.accept import kept, parse
from reliq.settings import Settings

pytestmark = pytest.mark.anyio

VECTORS = Path(__file__).parent.parent / "vectors"
CRM = "https://crm.test/hook/secret-token"
SEND = "https://telegram.test/bot1:token/sendMessage"


def settings(**changes):
    told = {
        "database_url": "postgresql://nowhere/none",
        "telegram_token": "1:token",
        "telegram_api": "https://telegram.test",
        "alert_chat_id": "-100",
    }
    return Settings(_env_file=None, **told | changes)


@pytest.fixture
def app():
    return automations.app(settings())


def delivery(source, body, headers=()):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Delivery(source=source, headers=headers, body=raw)


def job(kind, payload, key="event:5:x:1"):
    return Job(
        id=3, kind=kind, key=key, payload=payload, attempt=1, attempts_max=8, event_id=5,
        _transaction=None, _once=None,
    )  # fmt: skip


def read(app, source, body, headers=()):
    return parse(app.sources[source], delivery(source, body, headers))


def test_the_default_app_is_made_of_settings_and_says_which_it_needs():
    app = automations.app(settings(telegram_token=None, alert_chat_id=None))

    assert isinstance(app, App)
    assert set(app.sources) == {"site", "telegram", "github"}
    assert set(app.handlers) == {
        "site.form", "telegram.message", "github.event", "heartbeat", "watch", "webhook.deliver",
        *IN_TRANSACTIONS,
    }  # fmt: skip
    assert set(app.needs) == {"telegram_token", "alert_chat_id"}
    assert [(s.kind, s.when) for s in app.schedules] == [
        ("heartbeat", Every(minutes=60)), ("watch", Every(minutes=1)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("told", "kinds", "needs"),
    [
        ({"telegram_token": None, "alert_chat_id": None}, {"alert"}, set()),
        ({"alert_chat_id": None}, {"alert"}, set()),
        ({"telegram_token": None}, {"alert"}, {"telegram_token", "alert_chat_id"}),
        ({}, {"alert", "alert.telegram", "alert.webhook"}, {"telegram_token", "alert_chat_id"}),
    ],
)  # fmt: skip
def test_an_address_for_alerts_is_a_channel_beside_or_instead_of_the_bot(told, kinds, needs):
    app = automations.app(settings(alert_url="https://ops.test/hook", **told))

    assert {kind for kind in app.handlers if kind.startswith("alert")} == kinds
    assert set(app.needs) == needs


async def test_an_app_that_called_nobody_made_no_client_and_has_nothing_to_close(monkeypatch):
    monkeypatch.setattr(httpx, "AsyncClient", None)

    for close in automations.app(settings()).close:
        await close()


def test_a_form_is_one_job_with_its_fields_and_one_event_by_its_id(app):
    form = {"id": "f-1", "name": "Ada", "age": 36, "agreed": True, "note": None}

    parsed = read(app, "site", form)

    assert parsed.error is None
    assert parsed.dedup_key == "f-1"
    assert parsed.jobs == [NewJob(kind="site.form", payload={"fields": form})]


@pytest.mark.parametrize(("number", "key"), [({}, None), ({"id": 7}, "7"), ({"id": ""}, None)])
def test_a_form_may_have_a_number_or_no_id(app, number, key):
    parsed = read(app, "site", {"name": "Ada"} | number)

    assert (parsed.error, parsed.dedup_key, len(parsed.jobs)) == (None, key, 1)


def test_the_job_of_a_form_stays_small_however_large_the_form(app):
    form = {f"field-{n}": "x" * 10_000 for n in range(100)} | {"files": ["y" * 10_000]}

    [made] = read(app, "site", form).jobs

    assert len(made.payload["fields"]) == FIELDS_MAX
    assert {len(value) for value in made.payload["fields"].values()} == {VALUE_MAX}


def test_a_message_is_one_job_and_one_event_by_its_update(app):
    update = {"update_id": 11, "message": {"chat": {"id": -5, "type": "group"}, "text": "/ping"}}

    parsed = read(app, "telegram", update)

    assert (parsed.error, parsed.dedup_key) == (None, "11")
    assert parsed.jobs == [
        NewJob(kind="telegram.message", payload={"chat_id": -5, "text": "/ping"})
    ]


@pytest.mark.parametrize(
    "rest",
    [
        {},
        {"edited_message": {"chat": {"id": 1}, "text": "/ping"}},
        {"message": {"chat": {"id": 1}, "photo": []}},
        {"callback_query": {"id": "1"}},
        {"message": None},
    ],
)
def test_an_update_that_is_no_text_message_is_an_event_without_jobs(app, rest):
    parsed = read(app, "telegram", {"update_id": 11} | rest)

    assert (parsed.error, parsed.dedup_key, list(parsed.jobs)) == (None, "11", [])


def test_an_event_of_github_is_one_job_that_names_it(app):
    headers = [(b"x-github-event", b"issues"), (b"x-github-delivery", b"72d3162e")]
    body = {"action": "opened", "repository": {"full_name": "a/b"}, "issue": {"body": "x" * 9999}}

    parsed = read(app, "github", body, headers)

    assert (parsed.error, parsed.dedup_key) == (None, "72d3162e")
    assert [made.payload for made in parsed.jobs] == [
        {"event": "issues", "action": "opened", "repository": "a/b", "delivery": "72d3162e"}
    ]


def test_what_is_stored_of_a_github_delivery_is_enough_to_read_it_again(app):
    source = app.sources["github"]
    headers = [(b"x-github-event", b"push"), (b"x-github-delivery", b"72d3162e"),
               (b"x-hub-signature-256", b"sha256=00"), (b"accept", b"*/*")]  # fmt: skip
    first = delivery("github", {"ref": "main"}, headers)

    stored = kept(source, first)
    again = Delivery(
        source="github",
        headers=[(name.encode(), value.encode()) for name, value in stored.items()],
        body=first.body,
    )

    assert "x-hub-signature-256" not in stored
    assert parse(source, again) == parse(source, first)


@pytest.mark.parametrize("source", ["github", "telegram"])
def test_published_examples_are_told_apart_as_published(app, source):
    vectors = json.loads((VECTORS / f"{source}.json").read_text())
    told = [vector for vector in vectors if vector.get("dedup_key")]

    for vector in told:
        headers = [(name.lower().encode(), v.encode("latin-1")) for name, v in vector["headers"]]
        body = base64.b64decode(vector["body_base64"])
        assert read(app, source, body, headers).dedup_key == vector["dedup_key"], vector["id"]
    assert told


@pytest.mark.parametrize("source", ["site", "telegram", "github"])
@pytest.mark.parametrize(
    "body", [b"", b"Hello, World!", b"[]", b"7", b"null", b'"x"', b"\xff\0", b"[" * 100_000]
)
def test_a_body_that_is_no_object_is_unreadable_and_nothing_worse(app, source, body):
    parsed = read(app, source, body)

    assert parsed.error
    assert list(parsed.jobs) == []


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["id", "update_id", "message", "chat", "text", "repository", "full_name", "action", "name"]
)
objects = st.dictionaries(names, anything | st.dictionaries(names, anything), max_size=5)


@given(source=st.sampled_from(["site", "telegram", "github"]), body=st.binary() | objects)
def test_no_bytes_and_no_object_make_a_source_raise(source, body):
    parsed = read(automations.app(settings()), source, body)

    assert parsed.error or parsed.dedup_key is None or parsed.dedup_key


@respx.mock
@pytest.mark.parametrize("text", ["/ping", " /ping please", "/ping@reliq_bot"])
async def test_ping_is_answered_with_pong(app, text):
    sent = respx.post(SEND).respond(200)

    await app.handler("telegram.message").run(
        job("telegram.message", {"chat_id": 42, "text": text})
    )

    assert json.loads(sent.calls[0].request.content) == {"chat_id": 42, "text": "pong"}


@pytest.mark.respx(assert_all_called=False)
@pytest.mark.parametrize("text", ["", " ", "hello", "/pingpong", "what is /ping"])
async def test_any_other_text_is_left_alone(app, text, respx_mock):
    sent = respx_mock.post(SEND)

    await app.handler("telegram.message").run(
        job("telegram.message", {"chat_id": 42, "text": text})
    )

    assert not sent.called


@respx.mock
async def test_a_form_is_posted_on_where_there_is_an_address():
    sent = respx.post(CRM).respond(200)
    app = automations.app(settings(site_forward_url=CRM))

    with capture_logs() as logs:
        await app.handler("site.form").run(job("site.form", {"fields": {"name": "Ada"}}))

    [call] = sent.calls
    assert json.loads(call.request.content) == {"name": "Ada"}
    assert call.request.headers["idempotency-key"] == "event:5:x:1"
    assert [log["event"] for log in logs] == ["form.received"]
    assert "Ada" not in str(logs)
    [close] = app.close
    await close()


@respx.mock
async def test_a_form_that_the_crm_refuses_is_permanent_and_its_address_not_told():
    respx.post(CRM).respond(400, text="no such field; POST /hook/secret-token")
    app = automations.app(settings(site_forward_url=CRM))

    with capture_logs(), pytest.raises(PermanentError) as raised:
        await app.handler("site.form").run(job("site.form", {"fields": {"name": "Ada"}}))

    assert raised.value.status == 400
    assert "no such field" in str(raised.value)
    assert "secret-token" not in str(raised.value)
    assert "secret-token" not in repr(settings(site_forward_url=CRM))


PAYLOADS = {
    "site.form": {"fields": {"name": "Ada"}},
    "telegram.message": {"chat_id": 42, "text": "/ping"},
    "github.event": {"event": "push", "action": None, "repository": "a/b", "delivery": "72d3"},
    "heartbeat": {},
    "alert": {"job_id": 7, "kind": "site.form", "reason": "permanent", "attempt": 1, "error": "x"},
}

IN_TRANSACTIONS = {"report.request", "report.chunk", "report.finish"}
"""They ask nobody for anything and write with their success: see `test_reports.py`."""


def test_every_handler_but_those_that_need_a_database_is_run_twice_here():
    needs = {"watch", "webhook.deliver", *IN_TRANSACTIONS}
    assert set(automations.app(settings()).handlers) - set(PAYLOADS) == needs


@pytest.mark.respx(assert_all_called=False)
@pytest.mark.parametrize("kind", list(PAYLOADS))
async def test_a_handler_that_runs_twice_asks_for_the_same_thing_under_the_same_key(
    kind, respx_mock
):
    """After a crash between effect and settle a job runs again: nobody can promise otherwise."""
    respx_mock.post(SEND).respond(200)
    respx_mock.post(CRM).respond(200)
    app = automations.app(settings(site_forward_url=CRM))

    attempts = [job(kind, PAYLOADS[kind]) for _ in range(2)]
    with capture_logs() as logs:
        for attempt in attempts:
            assert await app.handler(kind).run(attempt) is None

    asked = [
        (call.request.url, call.request.content, call.request.headers["idempotency-key"])
        for call in respx_mock.calls
    ]
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
    assert logs[: len(logs) // 2] == logs[len(logs) // 2 :]
    assert asked or logs
    [close] = app.close
    await close()


async def test_every_call_of_the_default_app_has_a_total_deadline():
    made = []

    def answer(request):
        made.append(request.extensions["timeout"])
        return httpx.Response(200)

    app = automations.app(settings(site_forward_url=CRM, telegram_timeout=timedelta(seconds=3)))
    with respx.mock, capture_logs():
        respx.route().mock(side_effect=answer)
        for kind in ("site.form", "telegram.message", "alert"):
            await app.handler(kind).run(job(kind, PAYLOADS[kind]))

    assert [timeout["read"] for timeout in made] == [10, 3, 3]
    [close] = app.close
    await close()
