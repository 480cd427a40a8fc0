"""
GUARANTEES.md names what exists; no promise without invariant, scenario, mutant and test.

And the other way round: every scenario, mutant and invariant serves a promise.
"""

import re
import sys
from pathlib import Path
from shutil import which

import anyio
import pytest

from reliq.scenario import invariants
from reliq.scenario.load import load
from reliq.scenario.mutants import load_mutants, patched

ROOT = Path(__file__).parents[2]
RUFF = [sys.executable, "-m", "ruff"]
LOOK = ["--isolated", "--no-cache", "--target-version=py311", "--select=F821"]
TEXT = (ROOT / "GUARANTEES.md").read_text()
SCENARIOS = {file.stem: load(file)[0] for file in sorted(ROOT.glob("scenarios/[!_]*.yml"))}
MUTANTS = {
    mutant.name: mutant for mutant in load_mutants(ROOT / "tests/chaos/mutants", ROOT / "scenarios")
}


def rows(letter: str) -> dict[str, list[str]]:
    found = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in TEXT.splitlines()
        if re.match(rf"\| {letter}\d+ \|", line)
    ]
    return {row[0]: row for row in found}


def names(cell: str) -> list[str]:
    return re.findall(r"`([\w.-]+)`", cell)


PROMISES, HELD = rows("G"), rows("H")


def test_promises_are_numbered_in_order():
    assert list(PROMISES) == [f"G{n}" for n in range(1, len(PROMISES) + 1)]
    assert list(HELD) == [f"H{n}" for n in range(1, len(HELD) + 1)]


@pytest.mark.parametrize("number", PROMISES)
def test_a_promise_has_an_invariant_a_scenario_and_a_mutant(number: str):
    _, _, _, judges, scenarios, mutants, tests = PROMISES[number]
    judges = [item.strip() for item in judges.split(",")]

    assert set(judges) <= set(invariants.load())
    assert set(names(scenarios)) <= set(SCENARIOS)
    assert set(names(mutants)) <= set(MUTANTS)
    assert names(scenarios)
    assert names(mutants)
    assert names(tests)
    judged = {name for each in names(scenarios) for name, _ in SCENARIOS[each].expect.promises()}
    assert set(judges) <= judged, "an invariant that none of its scenarios asks for"
    seen_in = {MUTANTS[each].scenario.scenario for each in names(mutants)}
    assert seen_in <= set(names(scenarios)), "a mutant that none of its scenarios finds out"


@pytest.mark.parametrize("number", [*PROMISES, *HELD])
def test_a_row_names_tests_that_exist(number: str):
    named = names({**PROMISES, **HELD}[number][-1])

    assert named
    assert [name for name in named if not list(ROOT.glob(f"tests/*/{name}"))] == []


def test_every_scenario_and_mutant_serves_a_promise():
    served = [name for row in PROMISES.values() for cell in row[4:6] for name in names(cell)]

    assert {*SCENARIOS, *MUTANTS} - set(served) == set()


@pytest.mark.parametrize("name", [x for x, found in invariants.load().items() if not found.doubts])
def test_every_invariant_is_asked_for_by_a_scenario(name: str):
    asked = {each for cell in SCENARIOS.values() for each, _ in cell.expect.promises()}

    assert name in asked


def test_the_guide_lists_every_scenario_with_what_it_guards():
    guide = (ROOT / "scenarios" / "README.md").read_text()

    assert [name for name in SCENARIOS if f"[{name}]({name}.yml)" not in guide] == []


@pytest.mark.anyio
@pytest.mark.skipif(which("patch") is None, reason="no `patch` on the PATH: mutants need it")
@pytest.mark.parametrize("name", MUTANTS)
async def test_a_mutant_fits_the_code_it_breaks(name: str):
    async with patched(MUTANTS[name]) as code:
        command = [*RUFF, "check", *LOOK, str(code)]
        found = await anyio.run_process(command, check=False)

    assert found.returncode == 0, found.stdout.decode()  # a name that is gone breaks it otherwise
