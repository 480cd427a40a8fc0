"""The parts of the stage that need no database: processes and who starts them, senders, steps."""

import hashlib
import hmac
import json
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace

import anyio
import httpx
import pytest
import respx

from reliq.errors import HarnessError
from reliq.scenario.conduct import clock_drift_s
from reliq.scenario.load import load
from reliq.scenario.model.steps import Deliver, Load
from reliq.scenario.recorder import Recorder
from reliq.scenario.rig import INSTALLED
from reliq.scenario.run import run_scenario, slower
from reliq.scenario.stage.database import ClockMap
from reliq.scenario.stage.processes import open_processes
from reliq.scenario.stage.senders import Senders
from reliq.scenario.stage.spawning import by_exec, by_fork
from reliq.servers.loopback import free_port

pytestmark = pytest.mark.anyio

SCENARIO = load(Path(__file__).parents[2].joinpath("scenarios", "upstream-502-then-recovers.yml"))[
    0
]
SLOW = {
    "RELIQ_DATABASE_URL": "postgresql://x@127.0.0.1:1/x",
    "RELIQ_DB_BUDGET": "1h",
    "RELIQ_APP": "reliq.automations.drill:app",
    "RELIQ_SECRETS__DRILL": "for a test, and long enough to do",
    "RELIQ_LOG": "json",
}
"""A worker that waits for its database and does nothing else."""


@asynccontextmanager
async def spawning(how: str):
    if how == "exec":
        yield by_exec(INSTALLED)
    else:
        async with by_fork(INSTALLED) as spawn:
            yield spawn


@pytest.fixture(params=["fork", "exec"])
def how(request) -> str:
    return request.param


@asynccontextmanager
async def processes(how: str, folder: Path):
    recorder = Recorder()
    with anyio.fail_after(60):
        async with (
            spawning(how) as spawn,
            open_processes(recorder, folder=folder, spawn=spawn, names={}) as found,
        ):
            yield recorder, found


async def exits(recorder: Recorder, count: int) -> dict[str, int]:
    ended = [await recorder.wait_for(n + 1, lambda seen: seen.e == "exited") for n in range(count)]
    return {entry.p: entry.a["code"] for entry in ended}


async def test_a_process_that_is_gone_cannot_be_hit(how, tmp_path):
    async with processes(how, tmp_path) as (recorder, ours):
        await ours.start("worker-1", "worker", env={})
        codes = await exits(recorder, 1)
        hit = ours.signal("worker-1", "KILL")

    assert (codes, hit) == ({"worker-1": 2}, [])
    assert "RELIQ_DATABASE_URL is missing" in (tmp_path / "logs" / "worker-1.log").read_text()


async def test_a_role_means_all_its_processes_and_each_ends_by_its_signal(how, tmp_path):
    async with processes(how, tmp_path) as (recorder, ours):
        for name in ("worker-1", "worker-2"):
            await ours.start(name, "worker", env=SLOW)
        stopped = ours.signal("worker", "STOP")
        killed = ours.signal("worker-1", "KILL")
        continued = ours.signal("worker", "CONT")
        codes = await exits(recorder, 1)

    assert (stopped, killed) == (["worker-1", "worker-2"], ["worker-1"])
    assert "worker-2" in continued
    assert codes == {"worker-1": -9}
    assert {entry.p for entry in recorder.entries if entry.e == "exited"} == {
        "worker-1",
        "worker-2",
    }


async def test_a_process_has_halted_when_the_kernel_says_so(tmp_path):
    async with processes("fork", tmp_path) as (_, ours):
        await ours.start("worker-1", "worker", env=SLOW)
        with anyio.move_on_after(0.05) as waiting:
            await ours.halted("worker-1")
        ours.signal("worker-1", "STOP")
        with anyio.fail_after(5):
            await ours.halted("worker-1")

    assert waiting.cancelled_caught


async def test_the_next_incarnation_has_a_name_of_its_own_and_answers_to_the_old_one(tmp_path):
    async with processes("fork", tmp_path) as (recorder, ours):
        names = [ours.next_name("worker-1"), ours.next_name("worker-1")]
        await ours.start(names[0], "worker", env={})
        await exits(recorder, 1)
        await ours.start(names[1], "worker", env=SLOW)
        hit = ours.signal("worker-1", "KILL")

    assert names == ["worker-1", "worker-1#2"]
    assert hit == ["worker-1#2"]


async def test_a_command_runs_to_its_end_and_all_it_said_is_heard(how, tmp_path):
    async with processes(how, tmp_path) as (_, ours):
        code, said = await ours.run("operator", "--version", env={})

    assert code == 0
    assert said.startswith("reliq ")


async def test_a_process_that_ends_before_it_is_ready_fails_the_stage(tmp_path):
    async with processes("fork", tmp_path) as (_, ours):
        running = await ours.start("worker-1", "worker", env={})
        with pytest.raises(HarnessError, match="worker-1 ended with 2 before it was ready"):
            await ours.ready(running, f"http://127.0.0.1:{free_port()}/ready")


async def test_a_process_gets_nothing_of_our_environment(how, tmp_path, monkeypatch):
    monkeypatch.setenv("RELIQ_HOST", "our own")
    async with processes(how, tmp_path) as (_, ours):
        _, said = await ours.run("operator", "doctor", env={"RELIQ_DATABASE_URL": "nonsense"})

    assert "our own" not in said


@respx.mock
@pytest.mark.parametrize(
    ("answer", "outcome", "event"),
    [
        (httpx.Response(202, json={"id": 3, "jobs": 1}), "accepted", 3),
        (httpx.Response(202, text="thanks"), "accepted", None),
        (httpx.Response(401), "refused", None),
        (httpx.Response(503), "unknown", None),
        (httpx.ConnectError("nobody there"), "refused", None),
        (httpx.ReadError("cut off"), "unknown", None),
    ],
)
async def test_a_sender_knows_three_ways_for_a_delivery_to_end(answer, outcome, event):
    route = respx.post("http://receiver.test/hooks/drill")
    route.mock(side_effect=[answer])
    recorder = Recorder()

    await senders(recorder).deliver(Deliver(key="evt-{i}", headers={"X-Id": "{i}-{copy}"}))

    [seen] = recorder.entries
    assert (seen.a["outcome"], seen.a.get("event"), seen.a["key"]) == (outcome, event, "evt-1")
    assert seen.a["began"] <= seen.t
    sent = route.calls[0].request
    assert (sent.headers["x-id"], json.loads(sent.content)["id"]) == ("1-1", "evt-1")
    assert json.loads(sent.content)["jobs"][0]["payload"] == {"url": "http://up/"}


@respx.mock
async def test_a_sender_tries_again_until_it_is_content_or_has_had_enough():
    route = respx.post("http://receiver.test/hooks/drill")
    route.mock(
        side_effect=[
            httpx.Response(503),
            httpx.ReadError("cut"),
            httpx.Response(202, json={"id": 1}),
        ]
    )
    recorder = Recorder()
    await senders(recorder).deliver(Deliver(key="a", until_2xx=True, retry_every="1ms"))
    route.mock(side_effect=[httpx.Response(503)] * 2)
    await senders(recorder).deliver(Deliver(key="b", until_2xx=True, tries=2, retry_every="1ms"))

    assert [(x.a["key"], x.a["try"], x.a["outcome"]) for x in recorder.entries] == [
        ("a", 1, "unknown"), ("a", 2, "unknown"), ("a", 3, "accepted"),
        ("b", 1, "unknown"), ("b", 2, "unknown"),
    ]  # fmt: skip


@respx.mock
async def test_copies_are_sent_at_once_and_the_seed_decides_their_words():
    route = respx.post("http://receiver.test/hooks/drill").respond(202, json={"id": 1})
    words = []
    for _ in range(2):
        await senders(Recorder()).deliver(Deliver(key="a", copies=3, headers={"X-Id": "{uuid}"}))
        words.append({call.request.headers["x-id"] for call in route.calls})
        route.calls.reset()

    assert len(words[0]) == 3
    assert words[0] == words[1]


@respx.mock
async def test_deliveries_can_be_seen_to_differ_in_their_headers():
    respx.post("http://receiver.test/hooks/drill").respond(202, json={"id": 1})
    recorder = Recorder()
    for headers in ({"Via": "{uuid}"}, {"Via": "the same"}, {}):
        await senders(recorder).deliver(Deliver(key="a", copies=2, headers=headers))
    one, other, same, too, *none = [entry.a.get("headers") for entry in recorder.entries]

    assert one != other != same == too
    assert none == [None, None]


@respx.mock
@pytest.mark.parametrize(
    ("forged", "source", "is_signed"),
    [(None, "drill", True), ("body", "drill", False), ("secret", "drill", False),
     ("source", "nobody", True)],
)  # fmt: skip
async def test_a_forger_signs_what_it_cannot_or_goes_to_a_source_that_nobody_knows(
    forged, source, is_signed
):
    route = respx.post(f"http://receiver.test/hooks/{source}")
    route.respond(503, headers={"Retry-After": "7"})
    recorder = Recorder()

    await senders(recorder).deliver(Deliver(key="a", forged=forged))

    [sent] = [call.request for call in route.calls]
    proof = hmac.new(b"s", sent.content, hashlib.sha256).hexdigest()
    assert (sent.headers["x-signature"] == proof) is is_signed
    assert recorder.entries[0].a.get("forged") == forged
    assert recorder.entries[0].a["retry_after"] == "7"


def senders(recorder: Recorder) -> Senders:
    stage = SimpleNamespace(
        receivers=["http://receiver.test"], secret="s", upstream_url="http://up/"
    )
    return Senders(stage, recorder, Random(1))


async def test_a_run_without_a_stage_is_void_and_leaves_its_reason(tmp_path):
    @asynccontextmanager
    async def ground(_):
        raise HarnessError("no ground")
        yield

    rig = SimpleNamespace(ground=ground, code=tmp_path)

    result = await run_scenario(SCENARIO, rig=rig, seed=1, runs=tmp_path)

    assert result.judgement.verdict == "void"
    assert result.judgement.doubts == ["no ground"]
    assert json.loads((result.folder / "run.json").read_text())["verdict"] == "void"
    assert (tmp_path / "latest").resolve() == result.folder.resolve()


def test_a_void_run_is_repeated_at_a_tenth_of_its_speed():
    again = slower(SCENARIO)

    assert again.timescale == SCENARIO.timescale / 10
    assert again.settle.within == SCENARIO.settle.within * 10
    assert again.load[0].deliver.every == SCENARIO.load[0].deliver.every * 10
    assert again.system.config.lease == SCENARIO.system.config.lease
    assert again.system.config.store_deadline == SCENARIO.system.config.store_deadline * 10
    assert again.id == SCENARIO.id


def test_in_a_slower_run_handlers_take_as_much_longer():
    [load_] = SCENARIO.load
    body = {"jobs": [{"kind": "drill.block", "payload": {"s": 1.5}}]}
    deliver = load_.deliver.model_copy(update={"body": body})
    again = slower(SCENARIO.model_copy(update={"load": [Load(deliver=deliver)]}))

    assert again.load[0].deliver.body["jobs"][0] == {"kind": "drill.block", "payload": {"s": 15.0}}
    assert again.system.upstream == SCENARIO.system.upstream


def test_two_clocks_are_apart_only_if_their_errors_cannot_explain_it():
    assert clock_drift_s(ClockMap(0, 10), ClockMap(15, 10)) == 0
    assert clock_drift_s(ClockMap(0, 10), ClockMap(10**9, 10)) == pytest.approx(1, rel=1e-6)
