"""
Every invariant against golden histories: some it must accept, some it must reject.

A golden history is one line an entry: `seconds source name process field=value …`. Moments of the
database are written as seconds, `run_at=1.5s`. What a line of `wal` leaves out is put in: `db` is
the line's own time, `xid` a number of its own, `stmt` empty. `terms` overrides those of the run.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from reliq.scenario import invariants
from reliq.scenario.history import DB_SECOND, SECOND, Entry, History, Terms, in_order
from reliq.scenario.invariants.retry_spread import distance
from reliq.scenario.invariants.workers import able, idle

GOLDEN = Path(__file__).with_name("golden")
TERMS = Terms(
    lease_s=1.0, poll_s=0.05, reap_every_s=0.1, retry_base_s=0.2, retry_cap_s=5.0,
    retry_jitter=0.2, attempts_max=6, slack_s=0.15,
)  # fmt: skip
EVERY = sorted(invariants.load())
MOMENTS = {"db", "run_at", "lease_until", "was", "at", "open_until"}


def entry(line: str, n: int) -> Entry:
    at, src, name, process, *fields = line.split()
    values = dict(value(field) for field in fields)
    if src == "wal":
        values = {"xid": -1 - n, "stmt": "", "db": round(float(at) * DB_SECOND)} | values
    return Entry(0, round(float(at) * SECOND), src, process if process != "-" else "", name, values)


def value(field: str) -> tuple[str, Any]:
    name, text = field.split("=", 1)
    if name in MOMENTS and text.endswith("s"):
        return name, round(float(text[:-1]) * DB_SECOND)
    return name, yaml.safe_load(text)


def history(lines: Sequence[str], terms: Mapping[str, Any] | None = None) -> History:
    entries = in_order(entry(line, n) for n, line in enumerate(lines))
    return History(entries=entries, terms=Terms.of(TERMS.plain() | dict(terms or {})))


def golden(name: str) -> Any:
    return yaml.safe_load((GOLDEN / f"{name}.yml").read_text())


def cases(sort: str) -> Iterator[pytest.param]:
    for name in EVERY:
        file = golden(name)
        for title, lines in file[sort].items():
            yield pytest.param(name, history(lines, file.get("terms")), id=f"{name}: {title}")


def judged(name: str, seen: History) -> list:
    return list(invariants.load()[name].check(seen))


@pytest.mark.parametrize(("name", "seen"), list(cases("accepted")))
def test_an_invariant_accepts_a_good_history(name, seen):
    results = judged(name, seen)

    assert results
    assert [result.text for result in results if result] == []


@pytest.mark.parametrize(("name", "seen"), list(cases("rejected")))
def test_an_invariant_rejects_a_bad_history(name, seen):
    violations = [result for result in judged(name, seen) if result]

    assert violations
    for violation in violations:
        assert 1 <= len(violation.witnesses) <= 3
        assert all(witness in seen.entries for witness in violation.witnesses)


@pytest.mark.parametrize("name", EVERY)
def test_an_invariant_has_enough_golden_histories(name):
    assert len(golden(name)["accepted"]) >= 2
    assert len(golden(name)["rejected"]) >= 3


def test_no_golden_histories_are_left_over():
    assert {path.stem for path in GOLDEN.glob("*.yml")} == set(EVERY)


@pytest.mark.parametrize("name", EVERY)
def test_an_invariant_has_nothing_to_judge_in_an_empty_history(name):
    assert judged(name, history([])) == []


@pytest.mark.parametrize("name", EVERY)
def test_an_invariant_is_named_as_its_file_and_promises_something(name):
    invariant = invariants.load()[name]

    assert invariant.check.__module__.endswith(name.replace(".", "_").replace("-", "_"))
    assert 20 <= len(invariant.promise) <= 100
    assert invariant.doubts == name.startswith("recorder.")


LOST_LEASE = [
    "0.00 wal claim worker-1 job=1 fence=1 attempt=1 lease_until=1.0s",
    "1.05 wal lease-lost worker-2 job=1 fence=1",
]
PAUSES = [f"0.00 wal failed worker-1 job={n} attempt=1 run_at=0.2s" for n in range(30)]
BEFORE = ["0.00 wal job receiver-1 job=1 run_at=0.0s", "0.02 wal claim worker-1 job=1"]
FAULT = "1.00 fault fired - step=away to=postgres hits=1"
AFTER = ["4.00 wal job receiver-1 job=2 run_at=4.0s", "4.90 wal claim worker-1 job=2"]


@pytest.mark.parametrize(
    ("name", "lines", "terms"),
    [
        pytest.param("claims.lease-kept", LOST_LEASE, {"slack_s": 0.7}, id="a machine that stalls"),
        pytest.param("claims.lease-kept", LOST_LEASE, {"time_limit_s": 1.0}, id="past its time"),
        pytest.param("retry.spread", PAUSES[1:], {}, id="29 pauses"),
        pytest.param("retry.spread", PAUSES, {"retry_jitter": 0.0}, id="no jitter"),
        pytest.param("recover.latency", [*BEFORE, *AFTER], {}, id="no fault"),
        pytest.param("recover.latency", [FAULT, *AFTER], {}, id="no job before the fault"),
        pytest.param("recover.latency", [*BEFORE, FAULT], {}, id="no job after it"),
    ],
)
def test_nothing_is_judged_where_nothing_can_be_known(name, lines, terms):
    assert judged(name, history(lines, terms)) == []


def test_a_scenario_sets_how_soon_latency_must_be_back():
    seen = history([*BEFORE, FAULT, *AFTER])
    check = invariants.load()["recover.latency"].check

    assert [bool(result) for result in check(seen)] == [True]
    assert list(check(seen, within_s=3.5)) == []
    assert list(check(seen, factor=100.0)) == [None]


@pytest.mark.parametrize(
    ("shares", "far"),
    [([0.5], 0.5), ([0.25, 0.75], 0.25), ([0.0, 0.0], 1.0), ([1.0, 1.0], 1.0), ([0.1, 0.9], 0.4)],
)
def test_the_distance_from_an_even_spread(shares, far):
    assert distance(shares) == pytest.approx(far)


def spans(of: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, list[tuple[float, float]]]:
    return {p: [(begin / SECOND, end / SECOND) for begin, end in found] for p, found in of.items()}


END = "9.00 wal statement worker-9 stmt=none"
AT_WORK = "0.00 wal statement worker-1 stmt=claim_jobs"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        pytest.param([AT_WORK], [(0, 9)], id="undisturbed"),
        pytest.param(
            ["1.00 wal claim worker-1 job=1 fence=1 attempt=1",
             "2.00 wal claim worker-1 job=2 fence=1 attempt=1",
             "4.00 wal succeeded worker-1 job=1 fence=1"],
            [(1, 2), (4, 9)], id="all places taken for a while",
        ),
        pytest.param(
            ["1.00 wal claim worker-1 job=1 fence=1 attempt=1",
             "1.00 wal claim worker-1 job=2 fence=1 attempt=1",
             "1.00 process drill.started worker-1 job=1 attempt=1",
             "2.00 wal lease-lost worker-2 job=1 fence=1",
             "5.00 process drill.ended worker-1 job=1 attempt=1"],
            [(5, 9)], id="a handler that goes on keeps its place",
        ),
        pytest.param(
            [AT_WORK, "0.10 wal claim worker-2 job=1 fence=1 attempt=1",
             "1.20 wal lease-lost worker-1 job=1 fence=1",
             "1.30 wal claim worker-2 job=1 fence=2 attempt=2",
             "1.40 wal release worker-2 job=1 fence=2",
             "1.50 wal claim worker-2 job=1 fence=3 attempt=2",
             "2.60 wal lease-lost worker-1 job=1 fence=3",
             "3.00 wal claim worker-1 job=1 fence=4 attempt=3",
             "5.00 wal succeeded worker-1 job=1 fence=4"],
            [(0, 3), (5, 9)], id="a suspect runs alone",
        ),
        pytest.param(
            [AT_WORK, "2.00 fault fired - step=freeze sig=STOP to=worker-1 hits=1",
             "3.00 wal statement worker-1 stmt=claim_jobs",
             "4.00 fault healed - step=freeze to=worker-1",
             "4.50 wal statement worker-1 stmt=reap_jobs",
             "5.00 wal statement worker-1 stmt=claim_jobs"],
            [(0, 2), (5, 9)], id="frozen, and then at work again",
        ),
        pytest.param(
            [AT_WORK, "2.00 fault fired - step=freeze sig=STOP to=worker-1 hits=1",
             "4.00 fault fired - step=thaw sig=CONT to=worker-1 hits=1",
             "5.00 wal statement worker-1 stmt=claim_jobs"],
            [(0, 2), (5, 9)], id="thawed by a step of its own",
        ),
        pytest.param(
            [AT_WORK, "2.00 fault fired - step=cut to=postgres hits=1",
             "3.00 wal statement worker-1 stmt=claim_jobs",
             "4.00 fault healed - step=cut to=postgres",
             "5.00 wal statement worker-1 stmt=claim_jobs"],
            [(0, 2), (5, 9)], id="the database was cut off",
        ),
        pytest.param(
            [AT_WORK, "1.00 process started worker-2 pid=2",
             "2.00 fault fired - step=kill sig=KILL to=worker-2 hits=1"],
            [(0, 9)], id="another was killed",
        ),
        pytest.param(
            [AT_WORK, "2.00 fault fired - step=stop sig=TERM to=worker-1 hits=1",
             "3.00 wal statement worker-1 stmt=claim_jobs"],
            [(0, 2)], id="told to stop",
        ),
        pytest.param(
            [AT_WORK, "2.00 process database.away worker-1", "3.00 process database.back worker-1",
             "4.00 wal statement worker-1 stmt=claim_jobs", "6.00 process exited worker-1 code=0"],
            [(0, 2), (4, 6)], id="without the database, and ended",
        ),
    ],
)  # fmt: skip
def test_when_a_worker_is_idle(lines, found):
    seen = history([*lines, END], {"concurrency": 2})

    assert spans(idle(seen, 0.05).of).get("worker-1") == found


def test_a_worker_looks_for_lost_leases_late_after_a_fault():
    lines = [AT_WORK, "2.00 fault fired - step=cut to=postgres hits=1"]
    seen = history([*lines, "3.00 wal statement worker-1 stmt=claim_jobs", END])

    assert spans(able(seen, 0.05).of)["worker-1"] == [(0, 2), (4, 9)]
    assert able(seen, 0.05).within(0, round(0.05 * SECOND)) is None
    assert able(seen, 0.05).within(SECOND, 9 * SECOND) == ("worker-1", 1.0)
    assert able(seen, 3.0).within(SECOND, 9 * SECOND) == ("worker-1", 5.0)
    assert able(seen, 3.0).within(0, 4 * SECOND) is None
