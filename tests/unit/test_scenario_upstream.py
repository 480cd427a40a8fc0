"""The upstream's bad manners, as a real client over real sockets meets them."""

from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import httpx
import pytest

from reliq.scenario.model import Reply, Rule
from reliq.scenario.recorder import Recorder
from reliq.scenario.stage.upstream import open_upstream

pytestmark = pytest.mark.anyio

DEADLINE_S = 10
SOON_S = 0.05


@asynccontextmanager
async def serving(*rules: Rule):
    recorder = Recorder()
    async with (
        open_upstream(rules, recorder, {7: "worker-1"}) as upstream,
        httpx.AsyncClient(base_url=upstream.url, trust_env=False, timeout=DEADLINE_S) as client,
    ):
        with anyio.fail_after(DEADLINE_S):
            yield recorder, client


async def ask(client: httpx.AsyncClient, job: int = 1) -> httpx.Response:
    headers = {"Drill-Job": str(job), "Drill-Process": "7", "Idempotency-Key": f"key-{job}"}
    return await client.post("/", json={"job": job}, headers=headers)


async def answered(recorder: Recorder, nth: int = 1) -> dict[str, object]:
    return dict((await recorder.wait_for(nth, lambda seen: seen.e == "response")).a)


async def test_answers_come_by_job_in_the_order_of_the_rules():
    rules = (
        Rule(reply=Reply(status=500), times=1),
        Rule(reply=Reply(status=502), times_per_job=1),
        Rule(reply=Reply(status=201), times_per_job=1),
    )
    async with serving(*rules) as (_, client):
        seen = [(await ask(client, job)).status_code for job in (1, 2, 1, 1, 2, 1, 2)]

    assert seen == [500, 502, 502, 201, 201, 200, 200]


async def test_one_connection_serves_many_calls():
    async with serving(Rule(reply=Reply(status=204, body=""))) as (recorder, client):
        for _ in range(3):
            await ask(client)

    names = [entry.e for entry in recorder.entries]
    assert names == ["request", "response"] * 3
    first = recorder.entries[0]
    assert (first.p, first.a["job"], first.a["key"]) == ("worker-1", 1, "key-1")


@pytest.mark.parametrize("reset", ["before", "after-headers", "mid-body"])
async def test_a_reset_is_one_and_not_an_end(reset):
    async with serving(Rule(reply=Reply(reset=reset))) as (recorder, client):
        with pytest.raises(httpx.ReadError):  # a connection that is only closed ends otherwise
            await ask(client)
        said = await answered(recorder)

    assert (said["how"], said["status"]) == ("cut", 200)


@pytest.mark.parametrize(
    ("reset", "status", "bytes_seen"),
    [("after-headers", 503, 0), ("mid-body", 503, 2)],
)
async def test_what_comes_before_a_reset_is_heard(reset, status, bytes_seen):
    rule = Rule(reply=Reply(status=status, body="four", reset=reset))
    seen = b""
    async with serving(rule) as (_, client), client.stream("POST", "/") as response:
        with pytest.raises(httpx.ReadError):
            async for piece in response.aiter_raw():
                seen += piece

    assert (response.status_code, len(seen)) == (status, bytes_seen)


async def test_a_call_that_hangs_is_unheard_once_its_caller_leaves():
    async with serving(Rule(reply=Reply(hang=True), times=1)) as (recorder, client):
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/", timeout=SOON_S)
        said = await answered(recorder)
        again = await ask(client)

    assert said["how"] == "unheard"
    assert again.status_code == 200


async def test_nobody_hears_an_answer_that_comes_too_late():
    late = Rule(reply=Reply(delay=timedelta(seconds=60)))
    async with serving(late) as (recorder, client):
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/", timeout=SOON_S)
        said = await answered(recorder)

    assert said["how"] == "unheard"


async def test_a_body_drips_and_arrives_whole():
    reply = Reply(body="drops", drip=timedelta(milliseconds=5))
    async with serving(Rule(reply=reply)) as (recorder, client):
        async with client.stream("POST", "/") as response:
            pieces = [piece async for piece in response.aiter_raw()]
        said = await answered(recorder)
        after = await ask(client)

    assert len(pieces) > 1
    assert b"".join(pieces) == b"drops"
    assert (said["how"], after.text) == ("whole", "drops")


async def test_a_body_that_drips_outlasts_a_bound_on_every_pause():
    reply = Reply(body="x" * 1000, drip=timedelta(milliseconds=20))
    async with serving(Rule(reply=reply)) as (recorder, client):
        with anyio.move_on_after(SOON_S) as patience:
            await client.post("/", timeout=DEADLINE_S)
        said = await answered(recorder)

    assert patience.cancelled_caught
    assert said["how"] == "unheard"


async def test_half_an_answer_is_no_answer():
    reply = Reply(drip=timedelta(seconds=60))
    async with serving(Rule(reply=reply)) as (recorder, client):
        async with client.stream("POST", "/", timeout=SOON_S) as response:
            with pytest.raises(httpx.ReadTimeout):
                await response.aread()
        said = await answered(recorder)

    assert (response.status_code, said["how"]) == (200, "unheard")


async def test_who_follows_a_redirect_is_seen_elsewhere():
    reply = Reply(status=302, location="/elsewhere")
    async with serving(Rule(reply=reply, times=1)) as (recorder, client):
        response = await ask(client)
        assert response.next_request is not None
        await client.send(response.next_request)

    assert [x.a["path"] for x in recorder.entries if x.e == "request"] == ["/", "/elsewhere"]


@pytest.mark.parametrize(
    ("reply", "asked_s"),
    [
        (Reply(status=429), None),
        (Reply(status=429, retry_after="3"), 3),
        (
            Reply(
                status=503,
                headers={"Date": "Sun, 29 Nov 2026 12:00:00 GMT"},
                retry_after="Sun, 29 Nov 2026 12:00:02 GMT",
            ),
            2,
        ),
        (Reply(status=503, retry_after="Sun, 29 Nov 2026 12:00:02 GMT"), None),
    ],
)
async def test_it_is_written_down_for_how_long_an_answer_asked(reply, asked_s):
    async with serving(Rule(reply=reply)) as (recorder, client):
        response = await ask(client)

    assert response.headers.get("retry-after") == reply.retry_after
    assert recorder.entries[-1].a["retry_after_s"] == asked_s


async def test_other_rules_take_the_place_of_those_before_and_count_on():
    recorder = Recorder()
    async with (
        open_upstream([Rule(reply=Reply(status=500))], recorder, {}) as upstream,
        httpx.AsyncClient(base_url=upstream.url, trust_env=False) as client,
    ):
        with anyio.fail_after(DEADLINE_S):
            await ask(client)
            old = upstream.replace([Rule(reply=Reply(status=404))])
            await ask(client)
            upstream.replace(old)
            await ask(client)

    said = [(x.a["status"], x.a["rule"]) for x in recorder.entries if x.e == "response"]
    assert [status for status, _ in said] == [500, 404, 500]
    assert len({rule for _, rule in said[:2]}) == 2


async def test_who_waits_for_an_answer_does_not_hold_up_the_end():
    recorder = Recorder()
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as asking:
            rule = Rule(reply=Reply(hang=True))
            async with open_upstream([rule], recorder, {}) as upstream:

                async def patient() -> None:
                    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                        with pytest.raises(httpx.TransportError):
                            await client.post(upstream.url)

                asking.start_soon(patient)
                await recorder.wait_for(1, lambda seen: seen.e == "request")
