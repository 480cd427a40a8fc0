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

GOLDEN = Path(__file__).with_name("golden")
TERMS = Terms(
    lease_s=1.0, poll_s=0.05, reap_every_s=0.1, retry_base_s=0.2, retry_cap_s=5.0,
    retry_jitter=0.2, attempts_max=6, slack_s=0.15,
)  # fmt: skip
EVERY = sorted(invariants.load())
MOMENTS = {"db", "run_at", "lease_until", "was", "at"}


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
