"""The parts of the stage that need no database: the upstream, and a run that cannot be staged."""

import json
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace

import anyio
import httpx
import pytest
import respx

from reliq.scenario.conduct import Steps
from reliq.scenario.load import load
from reliq.scenario.model import Deliver, Reply, Rule
from reliq.scenario.recorder import Recorder
from reliq.scenario.run import run_scenario
from reliq.scenario.stage.processes import open_processes
from reliq.scenario.stage.sender import deliver
from reliq.scenario.stage.upstream import open_upstream
from reliq.servers.loopback import free_port

pytestmark = pytest.mark.anyio

SCENARIO = next(Path(__file__).parents[2].joinpath("scenarios").glob("*.yml"))


@asynccontextmanager
async def serving(*rules: Rule):
    recorder = Recorder()
    async with (
        open_upstream(rules, recorder, {7: "worker-1"}) as upstream,
        httpx.AsyncClient(base_url=upstream.url, trust_env=False) as client,
    ):
        with anyio.fail_after(10):
            yield recorder, client


async def ask(client: httpx.AsyncClient, job: int) -> int:
    headers = {"Drill-Job": str(job), "Drill-Process": "7", "Idempotency-Key": f"key-{job}"}
    return (await client.post("/", json={"job": job}, headers=headers)).status_code


async def test_the_upstream_fails_so_many_times_for_each_job():
    async with serving(Rule(reply=Reply(status=502), times_per_job=2)) as (_, client):
        seen = [await ask(client, job) for job in (1, 2, 1, 2, 1, 2)]

    assert seen == [502, 502, 502, 502, 200, 200]


async def test_the_upstream_fails_so_many_times_in_all():
    rules = Rule(reply=Reply(status=500), times=1), Rule(reply=Reply(status=429), times=1)
    async with serving(*rules) as (_, client):
        seen = [await ask(client, 1) for _ in range(3)]

    assert seen == [500, 429, 200]


async def test_the_upstream_logs_who_asked_with_which_key_and_what_it_said():
    async with serving(Rule(reply=Reply(status=503))) as (recorder, client):
        await ask(client, 4)

    request, response = recorder.entries
    assert (request.e, request.p, request.a["key"]) == ("request", "worker-1", "key-4")
    assert len(request.a["body"]) == 16
    assert (response.e, response.a["status"], response.a["rule"]) == ("response", 503, 0)
    assert request.a["call"] == response.a["call"]
    assert request.t <= response.t


async def test_the_upstream_does_not_keep_the_run_waiting_for_its_answers():
    async def patient(url: str) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            answered.append((await client.post(url)).status_code)

    answered, recorder = [], Recorder()
    with anyio.fail_after(10):
        async with (
            anyio.create_task_group() as asking,
            open_upstream([Rule(reply=Reply(delay="60s"))], recorder, {}) as upstream,
        ):
            asking.start_soon(patient, upstream.url)
            await recorder.wait_for(1, lambda seen: seen.e == "request")

    assert answered == [200]


@respx.mock
@pytest.mark.parametrize(
    ("answer", "outcome", "event"),
    [
        (httpx.Response(202, json={"id": 3, "jobs": 1}), "accepted", 3),
        (httpx.Response(202, text="thanks"), "accepted", None),
        (httpx.Response(503), "refused", None),
        (httpx.ConnectError("nobody there"), "refused", None),
        (httpx.ReadError("cut off"), "unknown", None),
    ],
)
async def test_a_sender_knows_three_ways_for_a_delivery_to_end(answer, outcome, event):
    route = respx.post("http://receiver.test/hooks/drill")
    route.mock(side_effect=[answer])
    stage = SimpleNamespace(
        receivers=["http://receiver.test"], secret="s", upstream=SimpleNamespace(url="http://up/")
    )
    recorder = Recorder()

    await deliver(Deliver(key="evt-{i}"), stage=stage, recorder=recorder, dice=Random(1))

    [seen] = recorder.entries
    assert (seen.a["outcome"], seen.a.get("event"), seen.a["key"]) == (outcome, event, "evt-1")
    sent = json.loads(route.calls[0].request.content)
    assert sent["id"] == "evt-1"
    assert sent["jobs"][0]["payload"] == {"url": "http://up/"}


class Away:
    """A server of which only the address is left."""

    def __init__(self) -> None:
        self.port = free_port()

    def dsn(self, database: str = "reliq") -> str:
        return f"postgresql://reliq@127.0.0.1:{self.port}/{database}"


async def test_a_run_without_a_stage_is_void_and_leaves_its_reason(tmp_path):
    result = await run_scenario(load(SCENARIO), server=Away(), seed=1, runs=tmp_path)

    assert result.judgement.verdict == "void"
    assert "the harness's own connection failed" in result.judgement.doubts[0]
    assert result.folder is not None
    assert json.loads((result.folder / "run.json").read_text())["verdict"] == "void"


async def test_a_process_that_is_gone_cannot_be_hit(tmp_path):
    recorder = Recorder()
    async with open_processes(recorder, folder=tmp_path, code=tmp_path, names={}) as processes:
        await processes.start("worker-1", "worker", env={})
        with anyio.fail_after(30):
            ended = await recorder.wait_for(1, lambda seen: seen.e == "exited")
        hits = processes.signal("worker-1", "KILL")

    assert (ended.p, ended.a["code"], hits) == ("worker-1", 2, 0)
    assert (tmp_path / "worker-1.log").read_text()


async def test_a_process_is_stopped_until_it_is_continued_or_gone(tmp_path):
    recorder = Recorder()
    async with open_processes(recorder, folder=tmp_path, code=tmp_path, names={}) as processes:
        await processes.start("worker-1", "worker", env={})
        await processes.start("worker-2", "worker", env={})
        assert processes.signal("worker-1", "STOP") == processes.signal("worker-2", "STOP") == 1
        assert processes.stopped() == ["worker-1", "worker-2"]
        assert processes.signal("worker-1", "CONT") == processes.signal("worker-2", "KILL") == 1
        with anyio.fail_after(30):
            codes = {
                (await recorder.wait_for(n, lambda seen: seen.e == "exited")).a["code"]
                for n in (1, 2)
            }
        left = processes.stopped()

    assert (codes, left) == ({2, -9}, [])


async def test_what_is_stopped_at_the_end_is_continued_and_said_so():
    sent, recorder = [], Recorder()

    def signal(name: str, sig: str) -> int:
        sent.append((name, sig))
        return 1

    processes = SimpleNamespace(stopped=lambda: ["worker-1"], signal=signal)

    steps = Steps(load(SCENARIO), SimpleNamespace(processes=processes), recorder, lambda _: None)
    steps.heal()

    assert sent == [("worker-1", "CONT")]
    [fired] = recorder.entries
    assert (fired.a["step"], fired.a["sig"], fired.a["hits"]) == ("heal", "CONT", 1)


async def test_leaving_the_block_ends_every_process(tmp_path):
    recorder = Recorder()
    async with open_processes(recorder, folder=tmp_path, code=tmp_path, names={}) as processes:
        await processes.start("worker-1", "worker", env={})

    assert [entry.e for entry in recorder.entries] == ["started", "exited"]
