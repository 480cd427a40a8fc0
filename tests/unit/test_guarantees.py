"""GUARANTEES.md names what exists: tests, scenarios, invariants, mutants; no promise without a test."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rows() -> list[list[str]]:
    lines = (ROOT / "GUARANTEES.md").read_text().splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if re.match(r"\| G\d+ \|", line)
    ]


PROMISES = {row[0]: row for row in rows()}


def test_promises_are_numbered_in_order():
    assert list(PROMISES) == [f"G{n}" for n in range(1, len(PROMISES) + 1)]


@pytest.mark.parametrize("number", PROMISES)
def test_a_promise_names_at_least_one_test_and_only_what_exists(number: str):
    _, _, _, invariants, tests, scenarios, mutants = PROMISES[number]

    named = re.findall(r"`(test_\w+\.py)`", tests)
    assert named
    assert [name for name in named if not list(ROOT.glob(f"tests/*/{name}"))] == []
    for name in re.findall(r"`([\w-]+)`", scenarios):
        assert (ROOT / f"scenarios/{name}.yml").exists(), name
    for name in re.findall(r"`([\w-]+)`", mutants):
        assert (ROOT / f"tests/chaos/mutants/{name}.patch").exists(), name
    for name in filter(None, (item.strip() for item in invariants.split(","))):
        module = name.replace(".", "_").replace("-", "_")
        assert (ROOT / f"src/reliq/scenario/invariants/{module}.py").exists(), name


def test_every_scenario_invariant_and_mutant_is_named():
    text = (ROOT / "GUARANTEES.md").read_text()
    named = {
        *(path.stem for path in ROOT.glob("scenarios/*.yml")),
        *(path.stem for path in ROOT.glob("tests/chaos/mutants/*.patch")),
    }
    assert {name for name in named if name not in text} == set()
