"""HTTP around the intake: every status, in the right order, within the limits."""

import hashlib
import hmac
from datetime import timedelta

import anyio
import httpx
import pytest
from structlog.testing import capture_logs

from reliq.app import App, Source
from reliq.domain.event import Duplicate, Stored
from reliq.domain.job import NewJob
from reliq.domain.signature import SITE
from reliq.errors import StoreUnavailable
from reliq.receiver.asgi import DISCARD_BYTES, make_asgi

pytestmark = pytest.mark.anyio

SECRET = b"correct horse"
LIMIT = 100


class Inbox:
    """Answers what it was told to, and remembers what it was asked to store."""

    def __init__(self, answer=None, reason=None):
        self.answer, self.reason, self.events = answer, reason, []

    async def store_event(self, event):
        self.events.append(event)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or Stored(12, len(event.jobs))

    async def why_not_ready(self):
        return self.reason


def client(inbox, **changes):
    one_job = Source(signature=SITE, route=lambda _: [NewJob(kind="demo")])
    app = App(
        sources={"demo": one_job, "big": Source(signature=SITE, route=one_job.route, body_max=200)}
    )
    application = make_asgi(
        app, secrets={"demo": [SECRET], "big": [SECRET]}, inbox=inbox, body_max=LIMIT, **changes
    )
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(application), base_url="http://receiver.test"
    )


def proof(body):
    return {"X-Signature": hmac.new(SECRET, body, hashlib.sha256).hexdigest()}


async def chunks(*parts):
    for part in parts:
        yield part


async def post(inbox, body=b"{}", *, to="/hooks/demo", headers=None, **changes):
    async with client(inbox, **changes) as http:
        return await http.post(to, content=body, headers=proof(b"{}") | (headers or {}))


async def test_a_genuine_delivery_is_accepted_with_its_number_and_jobs():
    response = await post(Inbox())

    assert (response.status_code, response.json()) == (202, {"id": 12, "jobs": 1})


async def test_a_duplicate_is_accepted_with_the_number_of_the_first():
    response = await post(Inbox(Duplicate(7)))

    assert response.status_code == 202
    assert response.json() == {"id": 7, "jobs": 0, "duplicate": True}


async def test_every_wrong_proof_gets_the_same_answer_and_the_log_the_reason():
    inbox, wrong, right = Inbox(), "0" * 64, proof(b"{}")["X-Signature"]
    attempts = [
        [],
        [("X-Signature", wrong)],
        [("X-Signature", "short")],
        [("X-Signature", right), ("X-Signature", right)],
        [("X_Signature", right)],
        [("X-Signature", b"\xff" * 64)],
    ]

    with capture_logs() as logs:
        async with client(inbox) as http:
            answers = [
                await http.post("/hooks/demo", content=b"{}", headers=headers)
                for headers in attempts
            ]

    assert {(a.status_code, a.content, str(a.headers)) for a in answers} == {
        (401, b'{"error":"unauthorized"}', str(answers[0].headers))
    }
    assert [log["reason"] for log in logs] == [
        "missing", "mismatch", "malformed", "repeated", "missing", "mismatch",
    ]  # fmt: skip
    assert inbox.events == []


async def test_an_unknown_source_is_not_found_and_nothing_is_written():
    inbox = Inbox()

    async with client(inbox) as http:
        unknown = await http.post("/hooks/nobody", content=b"x" * 1000, headers=proof(b""))
        elsewhere = await http.post("/elsewhere")

    assert unknown.status_code == elsewhere.status_code == 404
    assert unknown.json() == elsewhere.json() == {"error": "not found"}
    assert inbox.events == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
async def test_another_method_is_refused_with_the_one_that_is_allowed(method):
    async with client(Inbox()) as http:
        response = await http.request(method, "/hooks/demo")

    assert (response.status_code, response.headers["allow"]) == (405, "POST")


async def test_a_path_with_a_slash_too_many_is_not_redirected():
    assert (await post(Inbox(), to="/hooks/demo/")).status_code == 404


@pytest.mark.parametrize("how", ["announced", "chunked"])
async def test_a_body_over_the_limit_is_too_large_before_its_proof_is_looked_at(how):
    inbox, body = Inbox(), b"x" * (LIMIT + 1)
    content = body if how == "announced" else chunks(body[:LIMIT], body[LIMIT:])

    with capture_logs() as logs:
        response = await post(inbox, content, headers={"X-Signature": "wrong"})

    assert (response.status_code, response.headers["connection"]) == (413, "close")
    assert response.json() == {"error": "the body is too large"}
    assert [log["event"] for log in logs] == ["delivery.refused"]
    assert inbox.events == []


@pytest.mark.parametrize("how", ["announced", "chunked"])
async def test_a_body_of_exactly_the_limit_is_taken(how):
    body = b"x" * LIMIT
    content = body if how == "announced" else chunks(body[:50], body[50:])

    assert (await post(Inbox(), content, headers=proof(body))).status_code == 202


async def test_a_source_may_have_a_limit_of_its_own():
    body = b"x" * 150

    taken = await post(Inbox(), body, to="/hooks/big", headers=proof(body))
    refused = await post(Inbox(), body, headers=proof(body))

    assert (taken.status_code, refused.status_code) == (202, 413)


async def test_an_endless_body_is_read_no_further_than_it_is_worth():
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 65_536
            yield bytes(65_536)

    response = await post(Inbox(), endless())

    assert response.status_code == 413
    assert sent <= DISCARD_BYTES + LIMIT + 2 * 65_536


async def test_a_sender_that_asks_for_leave_first_is_refused_before_it_sends():
    async def never():
        pytest.fail("the body was asked for")
        yield b""

    headers = {"Expect": "100-continue", "Content-Length": "5000"}
    response = await post(Inbox(), never(), headers=headers)

    assert response.status_code == 413


async def test_a_body_that_does_not_come_in_time_is_given_up():
    async def stuck():
        yield b"{"
        await anyio.sleep_forever()

    with anyio.fail_after(5):
        response = await post(Inbox(), stuck(), body_timeout=timedelta(milliseconds=20))

    assert response.status_code == 408
    assert response.json() == {"error": "the body did not come in time"}


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("identity", 202), ("br", 415)])
async def test_an_encoded_body_is_refused_before_its_proof_is_looked_at(encoding, status):
    headers = {"Content-Encoding": encoding}
    if status != 202:
        headers["X-Signature"] = "wrong"

    assert (await post(Inbox(), headers=headers)).status_code == status


async def test_a_store_that_is_away_asks_the_sender_to_come_again_at_various_times():
    answers = [await post(Inbox(StoreUnavailable("away"))) for _ in range(40)]
    pauses = {int(answer.headers["retry-after"]) for answer in answers}

    assert {answer.status_code for answer in answers} == {503}
    assert min(pauses) >= 3
    assert max(pauses) <= 30
    assert len(pauses) > 5


async def test_a_bug_is_answered_without_details_and_logged_without_the_body():
    with capture_logs() as logs:
        response = await post(Inbox(RuntimeError("quoting the body: hunter2")))

    assert (response.status_code, response.json()) == (500, {"error": "internal error"})
    [log] = logs
    assert (log["event"], log["error"]) == ("delivery.failed", "RuntimeError")
    assert "store_event" in log["trace"]
    assert "hunter2" not in str(logs)


async def test_no_log_holds_a_secret_a_proof_or_a_body():
    body = b'{"password": "hunter2"}'
    with capture_logs() as logs:
        await post(Inbox(), body, headers=proof(body))
        await post(Inbox(), body, headers={"X-Signature": "0" * 64})
        await post(Inbox(Duplicate(1)), body, headers=proof(body))
        await post(Inbox(StoreUnavailable("away")), body, headers=proof(body))

    assert len(logs) == 4
    said = str(logs)
    assert SECRET.decode() not in said
    assert "hunter2" not in said
    assert proof(body)["X-Signature"] not in said


async def test_health_only_says_that_the_process_lives():
    async with client(Inbox(reason="no database")) as http:
        response = await http.get("/health")

    assert (response.status_code, response.json()) == (200, {"alive": True})


@pytest.mark.parametrize(
    ("reason", "status", "said"),
    [
        (None, 200, {"ready": True}),
        ("no database", 503, {"ready": False, "reason": "no database"}),
    ],
)
async def test_ready_says_whether_deliveries_can_be_stored_and_why_not(reason, status, said):
    async with client(Inbox(reason=reason)) as http:
        response = await http.get("/ready")

    assert (response.status_code, response.json()) == (status, said)


async def test_the_body_reaches_the_store_byte_for_byte():
    inbox, body = Inbox(), bytes(range(100))

    await post(inbox, chunks(body[:33], body[33:34], body[34:]), headers=proof(body))

    assert inbox.events[0].body == body
