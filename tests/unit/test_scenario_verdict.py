from dataclasses import replace
from pathlib import Path

import pytest

from reliq.errors import ScenarioInvalid
from reliq.scenario.history import Entry, History, in_order
from reliq.scenario.load import parse
from reliq.scenario.matching import count, matches, overlap
from reliq.scenario.merge import live_leases, merge, terms
from reliq.scenario.model import Quantity
from reliq.scenario.recorder import Recorder
from reliq.scenario.report import as_json, details, headline
from reliq.scenario.run import Result
from reliq.scenario.stage.settings import settings
from reliq.scenario.stored import read_history, read_plan, write_history, write_run
from reliq.scenario.verdict import judge, worst

pytestmark = pytest.mark.anyio

TEXT = """\
scenario: a-name
title: A title
why: A reason
timescale: 60
system:
  worker: {count: 2}
  config: {lease: 60s, poll: 3s, reap_every: 6s, backoff: {base: 12s}}
  upstream:
    - {reply: {status: 502}, times_per_job: 1}
load:
  - deliver: {count: 1, key: evt}
steps:
  - id: kill
    when: {at: 1s}
    do: {signal: {to: worker-1, sig: KILL}}
settle: {within: 2s}
expect:
  always: [work.all-settle]
  sometimes:
    - {what: a call, count: {src: upstream, e: request}, at_least: 1}
  never:
    - {what: a dead letter, count: {src: wal, e: dead}}
"""
[SCENARIO], _ = parse(Path("a.yml"), TEXT)

CALL = Entry(0, 100, "upstream", "worker-1", "request", {"call": 1, "job": 1, "attempt": 1})
ANSWER = Entry(0, 200, "upstream", "", "response", {"call": 1, "job": 1, "status": 502, "rule": 0})
KILL = Entry(0, 300, "fault", "", "fired",
             {"step": "kill", "do": "signal", "sig": "KILL", "to": "worker-1", "hits": 1})  # fmt: skip
MISS = Entry(0, 300, "fault", "", "fired",
             {"step": "kill", "do": "signal", "sig": "KILL", "to": "worker-1", "hits": 0})  # fmt: skip
HEALED = Entry(0, 350, "fault", "", "healed",
               {"step": "kill", "do": "signal", "to": "worker-1", "hits": 4})  # fmt: skip


def wal(t: int, e: str, **fields: object) -> Entry:
    return Entry(0, t, "wal", "worker-1", e, {"xid": t, "stmt": "", "db": t, "kind": "k", **fields})


def made(job: int, t: int = 50) -> Entry:
    return wal(t, "job", job=job, key=f"k-{job}", event=None, run_at=t, queue="default", priority=5,
               requeued_from=None)  # fmt: skip


def claimed(job: int, t: int = 60) -> Entry:
    return wal(t, "claim", job=job, attempt=1, attempts_max=3, fence=1, worker="w", run_at=50,
               lease_until=t + 10**6)  # fmt: skip


def done(job: int, t: int = 250) -> Entry:
    return wal(t, "succeeded", job=job, attempt=1, fence=1, lease_until=60 + 10**6)


STARTED = (
    Entry(0, 1, "process", "worker-1", "started", {"pid": 1, "command": "worker"}),
    Entry(0, 2, "process", "worker-1", "ready", {"pid": 1}),
)
JOB = (*STARTED, made(1), claimed(1), done(1))
OPEN = (made(2), claimed(2))
DEAD = wal(400, "dead", job=1, attempt=1, fence=1, reason="attempts", error="boom")


def history(*entries: Entry | tuple[Entry, ...]) -> History:
    flat = [one for each in entries for one in (each if isinstance(each, tuple) else (each,))]
    return History(entries=in_order(flat), terms=terms(SCENARIO, 0.15))


@pytest.mark.parametrize(
    ("entries", "doubts", "verdict"),
    [
        ((CALL, ANSWER, KILL, JOB), [], "pass"),
        ((CALL, ANSWER, KILL, JOB, OPEN), [], "violated"),
        ((CALL, ANSWER, KILL, JOB, DEAD), [], "violated"),
        ((CALL, ANSWER, KILL, JOB, OPEN), ["a doubt"], "violated"),
        ((CALL, ANSWER, KILL, JOB), ["a doubt"], "void"),
        ((CALL, ANSWER, JOB), ["a doubt"], "void"),
        ((CALL, ANSWER, JOB), [], "vacuous"),
        ((CALL, ANSWER, MISS, JOB), [], "vacuous"),
        ((CALL, ANSWER, MISS, HEALED, JOB), [], "pass"),
        ((CALL, KILL, JOB), [], "vacuous"),
        ((KILL, JOB), [], "vacuous"),
    ],
    ids=[
        "all is well", "a promise is broken", "what must never be was seen",
        "broken wins over doubt", "in doubt", "doubt wins over a miss",
        "the step never came", "the step hit nobody", "the step hit somebody later", "the upstream's rule was never used",
        "what must be was not seen",
    ],
)  # fmt: skip
def test_a_verdict(entries, doubts, verdict):
    assert judge(SCENARIO, history(*entries), doubts).verdict == verdict


@pytest.mark.parametrize(("rule", "verdict"), [(0, "pass"), (-1, "vacuous")])
def test_a_rule_of_the_mail_server_that_was_never_used_makes_a_run_vacuous(rule, verdict):
    [scenario], _ = parse(
        Path("a.yml"), TEXT.replace("  upstream:", "  mail: [{reply: later}]\n  upstream:")
    )
    said = Entry(
        0,
        220,
        "mail",
        "",
        "answer",
        {"mail": 1, "key": "k", "code": 451, "how": "heard", "rule": rule},
    )

    assert judge(scenario, history(CALL, ANSWER, KILL, JOB, said)).verdict == verdict


def test_an_invariant_that_had_nothing_to_judge_makes_a_run_vacuous():
    text = TEXT.replace("[work.all-settle]", "[work.all-settle, retry.spread]")
    [scenario], _ = parse(Path("a.yml"), text)

    judgement = judge(scenario, history(CALL, ANSWER, KILL, JOB))

    assert judgement.verdict == "vacuous"
    assert [one.name for one in judgement.findings if not one.judged] == ["retry.spread"]


def test_witnesses_that_disagree_make_a_run_void():
    judgement = judge(SCENARIO, history(CALL, ANSWER, KILL, *STARTED, made(1), done(1)))

    assert judgement.verdict == "void"
    assert judgement.doubts[0].startswith("recorder.consistent")


def test_what_was_missed_says_what_was_wanted():
    result = Result(
        scenario=SCENARIO, seed=7, judgement=judge(SCENARIO, history(MISS, JOB)), history=None,
        seconds=1.2, folder=None,
    )  # fmt: skip

    text = "\n".join(details(result, repeat="again"))

    assert "MISSED fault step kill: hit 0, it hit nobody" in text
    assert "MISSED sometimes a call: seen 0, wanted at least 1" in text
    never = judge(SCENARIO, history(JOB))
    assert never.faults[0].lacks == "its trigger never came"


def test_the_worst_verdict_speaks_for_all():
    assert worst(["pass", "void", "vacuous"]) == "void"
    assert worst(["vacuous", "violated", "void"]) == "violated"
    assert worst(["pass", "vacuous"]) == "vacuous"
    assert worst(["pass"]) == "pass"


def test_a_failure_reads_in_25_lines_and_says_how_to_repeat_it():
    open_jobs = tuple(entry for n in range(10, 19) for entry in (made(n), claimed(n, 350 + n)))
    full = history(CALL, ANSWER, KILL, JOB, *open_jobs, DEAD)
    result = Result(
        scenario=SCENARIO, seed=7, judgement=judge(SCENARIO, full), history=full,
        seconds=1.2, folder=None,
    )  # fmt: skip

    text = [headline(result), *details(result, repeat="reliq scenario run x.yml --seed 7")]

    assert len(text) <= 25
    assert text[0] == "violated: a-name (seed 7, 1.2 s)"
    joined = "\n".join(text)
    assert "broken: work.all-settle: every job comes to an end in the time allowed" in joined
    assert "job 10 is running at the end" in joined
    assert "and 7 more" in joined
    assert "faults before:" in joined
    assert "step=kill do=signal sig=KILL to=worker-1 hits=1" in joined
    assert "again: reliq scenario run x.yml --seed 7" in joined


def test_the_json_of_a_result_names_the_witnesses():
    full = history(CALL, ANSWER, KILL, JOB, OPEN)
    result = Result(
        scenario=SCENARIO, seed=7, judgement=judge(SCENARIO, full), history=full,
        seconds=1.2, folder=None,
    )  # fmt: skip

    told = as_json(result, repeat="again")

    [finding] = [one for one in told["invariants"] if one["violations"]]
    [violation] = finding["violations"]
    assert (told["verdict"], finding["name"]) == ("violated", "work.all-settle")
    assert [full.entries[i].a["job"] for i in violation["witnesses"]] == [2]


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({}, True),
        ({"status": 502}, True),
        ({"status": 200}, False),
        ({"status": [500, 502]}, True),
        ({"status": ">=500"}, True),
        ({"status": "<500"}, False),
        ({"retry_after_s": None}, True),
        ({"retry_after_s": 1}, False),
        ({"p": ""}, True),
    ],
)
def test_a_pattern_fits_by_every_field_it_names(fields, fits):
    pattern = Quantity(src="upstream", e="response", **fields)

    assert matches(pattern, ANSWER) is fits
    assert count(pattern, [ANSWER, CALL]) == int(fits)


async def test_a_trigger_waits_for_the_nth_entry_also_if_it_was_seen_before():
    recorder = Recorder(now=iter(range(100)).__next__)
    recorder.record("upstream", "request", job=1)
    recorder.record("driver", "delivery")
    recorder.record("upstream", "request", job=2)

    found = await recorder.wait_for(2, lambda seen: seen.src == "upstream")

    assert found.a["job"] == 2


def test_a_fault_learns_what_its_victims_held():
    merged = merge(SCENARIO, [*JOB, KILL, *OPEN, Entry(0, 1, "canary", "", "late", {"by_s": 0.1})],
                   slack_s=0.15)  # fmt: skip

    [fault] = merged.of("fault", "fired")
    assert fault.a["victim_live_leases"] == live_leases(merged, fault) == 1
    assert [entry.i for entry in merged.entries] == list(range(len(merged.entries)))


def test_overlaps_are_counted_at_their_thickest():
    def sent(began: int, ended: int) -> Entry:
        return Entry(0, ended, "driver", "", "delivery", {"began": began, "key": "k"})

    deliveries = history(sent(0, 10), sent(5, 15), sent(9, 20), sent(20, 30)).entries
    calls = history(CALL, replace(CALL, t=150, a={**CALL.a, "call": 2}), ANSWER).entries

    assert overlap(Quantity(src="driver", e="delivery"), deliveries) == 3
    assert overlap(Quantity(src="upstream", e="request"), calls) == 2
    assert count(Quantity(src="driver", e="delivery", distinct="key"), deliveries) == 1


def test_a_history_can_be_stored_and_judged_again(tmp_path):
    seen = history(CALL, ANSWER, KILL, JOB)
    write_history(tmp_path / "history.jsonl", SCENARIO, 7, seen)
    write_run(tmp_path, SCENARIO, {"seed": 7})

    about, read = read_history(tmp_path / "history.jsonl")

    assert (about["scenario"], about["seed"]) == ("a-name", 7)
    assert (read.entries, read.terms) == (seen.entries, seen.terms)
    assert judge(read_plan(tmp_path / "plan.json", about["cell"]), read).verdict == "pass"


@pytest.mark.parametrize(("text", "said"), [
    ("", ":1: no heading"), ("{}", ":1: no heading"),
    ('{"scenario": "x", "terms": 3}', ":1: no heading"),
])  # fmt: skip
def test_what_is_no_history_is_refused(text, said, tmp_path):
    file = tmp_path / "history.jsonl"
    file.write_text(text)

    with pytest.raises(ScenarioInvalid, match=said):
        read_history(file)


def test_a_broken_line_of_a_history_is_named(tmp_path):
    file = tmp_path / "history.jsonl"
    write_history(file, SCENARIO, 7, history(CALL))
    heading, _ = file.read_text().splitlines()
    file.write_text(f'{heading}\n{{"i": 1}}\n')

    with pytest.raises(ScenarioInvalid, match=":2: no entry"):
        read_history(file)


def test_a_history_that_was_cut_short_is_refused(tmp_path):
    file = tmp_path / "history.jsonl"
    write_history(file, SCENARIO, 7, history(CALL, ANSWER), ["a doubt"])
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))

    with pytest.raises(ScenarioInvalid, match="2 entries are told of, 1 there"):
        read_history(file)

    file.write_text("".join(lines))
    assert read_history(file)[0]["doubts"] == ["a doubt"]


def test_settings_are_scaled_to_real_time():
    env = settings(SCENARIO)

    assert (env["RELIQ_LEASE"], env["RELIQ_POLL"], env["RELIQ_RETRY_BASE"]) == (
        "1s", "50ms", "200ms"
    )  # fmt: skip
    assert terms(SCENARIO, 0.15).pause(2) == pytest.approx((0.32, 0.48))
    assert terms(SCENARIO, 0.15).pause(1000) == pytest.approx((40.0, 60.0))
