from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import httpx
import pytest
import respx

from reliq.app import Job
from reliq.automations import drill
from reliq.domain.event import Delivery
from reliq.errors import PermanentError, TemporaryError

pytestmark = pytest.mark.anyio

URL = "http://upstream.test/"


def job(kind: str, **payload: object) -> Job:
    return Job(
        id=7, kind=kind, key="event:1:call:1", payload={"url": URL, **payload}, attempt=2,
        attempts_max=3, event_id=1, _transaction=lambda: None,
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
        await drill.call(http, first)
        await drill.sleep(http, job("drill.call", seconds=0))
        await drill.call(http, second)

    requests = [call.request for call in route.calls]
    assert {request.headers["idempotency-key"] for request in requests} == {"event:1:call:1"}
    assert len({request.content for request in requests}) == 1
    assert [request.headers["drill-attempt"] for request in requests] == ["2", "2", "3"]


@respx.mock
@pytest.mark.parametrize(("status", "error"), [(502, TemporaryError), (400, PermanentError)])
async def test_a_call_fails_as_the_upstream_says(status, error):
    respx.post(URL).respond(status)
    async with httpx.AsyncClient() as http:
        with pytest.raises(error):
            await drill.call(http, job("drill.call"))


async def test_a_failure_is_of_the_sort_that_was_asked_for():
    with pytest.raises(TemporaryError):
        await drill.fail(job("drill.fail"))
    with pytest.raises(PermanentError):
        await drill.fail(job("drill.fail", permanent=True))


def job_that_writes_into(written: list, kind: str) -> Job:
    @asynccontextmanager
    async def transaction():
        async def execute(statement, *arguments):
            await anyio.lowlevel.checkpoint()
            written.append(arguments)

        yield SimpleNamespace(execute=execute)

    writing = job(kind)
    writing._transaction = transaction
    return writing


async def test_a_write_goes_through_the_transaction_of_the_job():
    written = []

    await drill.write(job_that_writes_into(written, "drill.write"))

    assert written == [(7, "event:1:call:1", 2)]


@respx.mock
async def test_a_stubborn_job_calls_and_writes_although_it_is_told_to_stop():
    route, written = respx.post(URL).respond(200), []
    async with httpx.AsyncClient() as http:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await drill.stubborn(http, job_that_writes_into(written, "drill.stubborn"))

    assert route.call_count == 1
    assert written == [(7, "event:1:call:1", 2)]
