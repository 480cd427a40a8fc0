import pytest

from reliq.scenario.history import Entry, History, in_order
from reliq.scenario.load import parse
from reliq.scenario.matching import count, matches
from reliq.scenario.merge import live_leases, merge, strangers, terms
from reliq.scenario.model import Pattern
from reliq.scenario.recorder import Recorder
from reliq.scenario.report import as_json, details, headline
from reliq.scenario.run import Result
from reliq.scenario.stage import settings
from reliq.scenario.verdict import judge, worst

pytestmark = pytest.mark.anyio

TEXT = """\
scenario: a-name
title: A title
why: A reason
timescale: 60
system:
  worker: {count: 2}
  config: {poll: 3s, reap_every: 6s, backoff: {base: 12s}}
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
    - {what: a dead letter, count: {src: rows, e: dead}}
"""
SCENARIO, _ = parse(TEXT)

CALL = Entry(0, 100, "upstream", "worker-1", "request", {"call": 1, "job": 1, "attempt": 1})
ANSWER = Entry(0, 200, "upstream", "", "response", {"call": 1, "job": 1, "status": 502, "rule": 0})
KILL = Entry(0, 300, "fault", "", "fired",
             {"step": "kill", "sig": "KILL", "to": "worker-1", "hits": 1})  # fmt: skip
MISS = Entry(0, 300, "fault", "", "fired",
             {"step": "kill", "sig": "KILL", "to": "worker-1", "hits": 0})  # fmt: skip
JOB = Entry(0, 50, "rows", "", "job", {"job": 1, "state": "succeeded", "attempt": 1})
OPEN = Entry(0, 50, "rows", "", "job", {"job": 2, "state": "running", "attempt": 1})
DEAD = Entry(0, 400, "rows", "", "dead", {"job": 1, "attempt": 1})


def history(*entries: Entry) -> History:
    return History(entries=in_order(entries), terms=terms(SCENARIO, 0.15))


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
        ((CALL, KILL, JOB), [], "vacuous"),
        ((ANSWER, KILL, JOB), [], "vacuous"),
        ((CALL, ANSWER, KILL), [], "vacuous"),
    ],
    ids=[
        "all is well", "a promise is broken", "what must never be was seen",
        "broken wins over doubt", "in doubt", "doubt wins over a miss",
        "the step never came", "the step hit nobody", "the upstream's rule was never used",
        "what must be was not seen", "nothing to judge",
    ],
)  # fmt: skip
def test_a_verdict(entries, doubts, verdict):
    assert judge(SCENARIO, history(*entries), doubts).verdict == verdict


def test_the_worst_verdict_speaks_for_all():
    assert worst(["pass", "void", "vacuous"]) == "void"
    assert worst(["vacuous", "violated", "void"]) == "violated"
    assert worst(["pass", "vacuous"]) == "vacuous"
    assert worst(["pass"]) == "pass"


def test_a_failure_reads_in_25_lines_and_says_how_to_repeat_it():
    open_jobs = [
        Entry(0, 350 + n, "rows", "", "job", {"job": n, "state": "running", "attempt": 1})
        for n in range(9)
    ]
    full = history(CALL, ANSWER, KILL, *open_jobs, DEAD)
    result = Result(
        scenario=SCENARIO, seed=7, judgement=judge(SCENARIO, full), history=full,
        seconds=1.2, folder=None,
    )  # fmt: skip

    text = [headline(result), *details(result, repeat="reliq scenario run x.yml --seed 7")]

    assert len(text) <= 25
    assert text[0] == "violated: a-name (seed 7, 1.2 s)"
    joined = "\n".join(text)
    assert "broken: work.all-settle: every job comes to an end in the time allowed" in joined
    assert "job 0 is running at the end, attempt 1" in joined
    assert "and 7 more" in joined
    assert "faults before:" in joined
    assert "step=kill sig=KILL to=worker-1 hits=1" in joined
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
        ({"unheard_of": None}, False),
    ],
)
def test_a_pattern_fits_by_every_field_it_names(fields, fits):
    pattern = Pattern(src="upstream", e="response", **fields)

    assert matches(pattern, ANSWER) is fits
    assert count(pattern, [ANSWER, CALL]) == int(fits)


async def test_a_trigger_waits_for_the_nth_entry_also_if_it_was_seen_before():
    recorder = Recorder(now=iter(range(100)).__next__)
    recorder.record("upstream", "request", job=1)
    recorder.record("driver", "delivery")
    recorder.record("upstream", "request", job=2)

    found = await recorder.wait_for(2, lambda seen: seen.src == "upstream")

    assert found.a["job"] == 2


def test_the_rows_learn_which_process_a_worker_was_and_the_fault_what_it_held():
    claim = Entry(
        0, 90, "rows", "box-1-ab", "claim",
        {"job": 1, "fence": 1, "attempt": 1, "worker": "box-1-ab"},
    )  # fmt: skip
    lost = Entry(0, 900, "rows", "box-1-ab", "lease-lost",
                 {"job": 1, "fence": 1, "attempt": 1, "worker": "box-1-ab"})  # fmt: skip

    merged = merge(SCENARIO, [CALL, KILL], [claim, lost], slack_s=0.15)

    assert [entry.p for entry in merged.of("rows", "claim", "lease-lost")] == ["worker-1"] * 2
    [fault] = merged.of("fault", "fired")
    assert fault.a["victim_live_leases"] == live_leases(merged, fault) == 1


def test_a_caller_or_a_job_that_nobody_knows_is_a_doubt():
    stranger = Entry(0, 150, "upstream", "pid 9", "request", {"call": 2, "job": 3, "attempt": 1})

    assert list(strangers(SCENARIO, history(CALL, JOB))) == []
    assert list(strangers(SCENARIO, history(CALL, JOB, stranger))) == [
        "the upstream was called by a stranger: pid 9",
        "the upstream was called for job 3, which is in no table",
    ]


def test_settings_are_scaled_to_real_time():
    env = settings(SCENARIO)

    assert (env["RELIQ_LEASE"], env["RELIQ_POLL"], env["RELIQ_RETRY_BASE"]) == (
        "1s", "50ms", "200ms"
    )  # fmt: skip
    assert terms(SCENARIO, 0.15).pause(2) == pytest.approx((0.32, 0.48))
    assert terms(SCENARIO, 0.15).pause(1000) == pytest.approx((40.0, 60.0))
