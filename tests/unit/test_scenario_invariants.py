"""
Every invariant against golden histories: some it must accept, some it must reject.

A golden history is one line an entry: `seconds source name process field=value …`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from reliq.scenario import invariants
from reliq.scenario.history import SECOND, Entry, History, Terms, in_order

GOLDEN = Path(__file__).with_name("golden")
TERMS = Terms(
    lease_s=1.0, poll_s=0.05, reap_every_s=0.1, retry_base_s=0.2, retry_cap_s=5.0,
    retry_jitter=0.2, attempts_max=6, slack_s=0.15,
)  # fmt: skip
EVERY = sorted(invariants.load())


def entry(line: str) -> Entry:
    at, src, name, process, *fields = line.split()
    pairs = (field.split("=", 1) for field in fields)
    values = {field: yaml.safe_load(value) for field, value in pairs}
    return Entry(0, round(float(at) * SECOND), src, process if process != "-" else "", name, values)


def history(lines: list[str]) -> History:
    return History(entries=in_order(map(entry, lines)), terms=TERMS)


def cases(sort: str) -> Iterator[pytest.param]:
    for name in EVERY:
        golden = yaml.safe_load((GOLDEN / f"{name}.yml").read_text())
        for title, lines in golden[sort].items():
            yield pytest.param(name, history(lines), id=f"{name}: {title}")


@pytest.mark.parametrize(("name", "golden"), list(cases("accepted")))
def test_an_invariant_accepts_a_good_history(name, golden):
    results = list(invariants.load()[name].check(golden))

    assert results
    assert [result.text for result in results if result] == []


@pytest.mark.parametrize(("name", "golden"), list(cases("rejected")))
def test_an_invariant_rejects_a_bad_history(name, golden):
    violations = [result for result in invariants.load()[name].check(golden) if result]

    assert violations
    for violation in violations:
        assert 1 <= len(violation.witnesses) <= 3
        assert all(witness in golden.entries for witness in violation.witnesses)


@pytest.mark.parametrize("name", EVERY)
def test_an_invariant_has_enough_golden_histories(name):
    golden = yaml.safe_load((GOLDEN / f"{name}.yml").read_text())

    assert len(golden["accepted"]) >= 2
    assert len(golden["rejected"]) >= 3


@pytest.mark.parametrize("name", EVERY)
def test_an_invariant_has_nothing_to_judge_in_an_empty_history(name):
    assert list(invariants.load()[name].check(history([]))) == []


@pytest.mark.parametrize("name", EVERY)
def test_an_invariant_is_used_by_a_scenario(name):
    scenarios = Path(__file__).parents[2].joinpath("scenarios").glob("*.yml")

    assert any(name in yaml.safe_load(file.read_text())["expect"]["always"] for file in scenarios)


def test_lease_kept_does_not_judge_on_a_machine_that_stalls():
    lines = [
        "0.00 rows claim worker-1 job=1 fence=1 attempt=1",
        "1.05 rows lease-lost worker-1 job=1 fence=1 buried=false",
    ]
    stalled = History(
        entries=history(lines).entries, terms=Terms(**(_fields(TERMS) | {"slack_s": 0.7}))
    )

    assert list(invariants.load()["claims.lease-kept"].check(stalled)) == []


def _fields(terms: Terms) -> dict:
    return {name: getattr(terms, name) for name in Terms.__dataclass_fields__}
