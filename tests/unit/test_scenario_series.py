"""Many runs, their order and what is left out; plans, the placebo, the schema: nothing is started."""

import json
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest

from reliq.scenario import series
from reliq.scenario.load import load
from reliq.scenario.placebo import placebo
from reliq.scenario.plan import listed, planned
from reliq.scenario.run import Result
from reliq.scenario.schema import schema
from reliq.scenario.series import Item, Series, first_cells, items, sliced
from reliq.scenario.verdict import Judgement

ROOT = Path(__file__).parents[2]
FILE = ROOT / "scenarios" / "upstream-502-then-recovers.yml"
CELLS = [(FILE, cell) for cell in load(FILE)][:4]


class Silent:
    def __init__(self) -> None:
        self.shown = []

    def tell(self, item: Item, text: str) -> None:
        pass

    def show(self, item: Item, result: Result, repeat: str) -> None:
        self.shown.append((item, repeat))


@pytest.fixture
def played(monkeypatch, tmp_path):
    """Play a series of which every run ends as it is told; returns verdicts and what was shown."""

    @asynccontextmanager
    async def no_rig(*_, **__):
        yield SimpleNamespace()

    async def play(due, verdict, *, resume=False):
        async def run(scenario, *, seed, **_):
            ended = verdict(scenario, seed)
            if isinstance(ended, Exception):
                raise ended
            return Result(scenario=scenario, seed=seed, judgement=Judgement(verdict=ended),
                          history=None, seconds=0, folder=None)  # fmt: skip

        monkeypatch.setattr(series, "open_rig", no_rig)
        monkeypatch.setattr(series, "run_scenario", run)
        screen = Silent()
        each = Series(provider="embedded", image="", proxy="auto", runs=tmp_path, jobs=2,
                      keep=False, resume=resume, screen=screen)  # fmt: skip
        return await each.play(due), screen.shown

    return play


def test_runs_have_the_seeds_that_follow_the_first():
    assert [item.seed for item in items(CELLS[:1], seed=7, repeat=3)] == [7, 8, 9]
    named = items(CELLS, seed=None, repeat=1)
    assert len({item.seed for item in named}) == len(named)


def test_slices_are_disjoint_and_leave_nothing_out():
    everything = list(range(11))

    parts = [sliced(everything, f"{i}/3") for i in (1, 2, 3)]

    assert sorted(chain(*parts)) == everything
    assert sliced(everything, "") == everything
    for wrong in ("0/3", "4/3", "a/b", "3", "1/0"):
        with pytest.raises(ValueError, match="--slice is written I/N"):
            sliced(everything, wrong)


@pytest.mark.anyio
async def test_verdicts_come_in_the_order_of_the_runs(played):
    due = items(CELLS, seed=1, repeat=1)
    wanted = dict(
        zip(
            [item.scenario.id for item in due], ["pass", "violated", "vacuous", "pass"], strict=True
        )
    )

    verdicts, shown = await played(due, lambda scenario, _: wanted[scenario.id])

    assert verdicts == ["pass", "violated", "vacuous", "pass"]
    assert len(shown) == 4
    assert shown[1][1].endswith("--seed 1 --cell status=500 --postgres embedded")


@pytest.mark.anyio
async def test_a_void_run_is_repeated_once_and_slower_and_a_violation_never(played):
    due, calls = items(CELLS[:2], seed=1, repeat=1), []

    def verdict(scenario, seed):
        calls.append((scenario.id, scenario.timescale))
        if scenario.timescale < 1000:
            return "pass"
        return "void" if scenario.cell["status"] == 502 else "violated"

    verdicts, shown = await played(due, verdict)

    assert verdicts == ["pass", "violated"]
    assert [timescale for _, timescale in calls] == [1000, 1000, 100]
    assert len(shown) == 3


@pytest.mark.anyio
async def test_void_again_stays_void(played):
    verdicts, _ = await played(items(CELLS[:1], seed=1, repeat=1), lambda *_: "void")

    assert verdicts == ["void"]


@pytest.mark.anyio
async def test_what_had_passed_is_left_out_when_resumed(played):
    due, runs = items(CELLS, seed=1, repeat=1), []
    with pytest.raises(ExceptionGroup):
        await played(
            due, lambda scenario, _: "pass" if scenario.cell["status"] == 502 else OSError()
        )

    def verdict(scenario, _):
        runs.append(scenario.cell["status"])
        return "pass"

    verdicts, _ = await played(due, verdict, resume=True)
    again, _ = await played(due, verdict, resume=True)

    assert verdicts == again == ["pass"] * 4
    assert sorted(runs) == [500, 500, 502, 503, 503, 504, 504]


def test_only_the_first_cell_of_each_file_is_kept():
    assert first_cells([*CELLS, (Path("b.yml"), CELLS[2][1])]) == [
        CELLS[0],
        (Path("b.yml"), CELLS[2][1]),
    ]


@pytest.mark.parametrize(
    "file", sorted((ROOT / "scenarios").glob("[!_]*.yml")), ids=lambda f: f.stem
)
def test_the_placebo_of_a_scenario_has_no_harm_left(file):
    cell = load(file)[0]

    harmless = placebo(cell)

    assert not harmless.steps
    assert not harmless.system.upstream
    assert not harmless.system.mail
    assert (harmless.system.mail is None) == (cell.system.mail is None)
    assert harmless.expect == cell.expect
    assert "drill.exit" not in "".join(load.model_dump_json() for load in harmless.load)


@pytest.mark.parametrize(
    "file", sorted((ROOT / "scenarios").glob("[!_]*.yml")), ids=lambda f: f.stem
)
def test_a_plan_names_every_step_and_promise(file):
    for cell in load(file):
        text = "\n".join(planned(cell, 7))

        assert all(f"step   {step.id}: " in text for step in cell.steps)
        assert all(f"always {name}" in text for name, _ in cell.expect.promises())
        assert text.count("  mail   ") == len(cell.system.mail or ())
        assert "(seed 7)" in text


def test_cells_are_listed_for_people_and_for_programs():
    lines = list(listed(CELLS, as_json=False))
    told = [json.loads(line) for line in listed(CELLS, as_json=True)]

    assert lines[0].startswith("upstream-502-then-recovers[status=502]  [")
    assert told[0]["id"] == "upstream-502-then-recovers[status=502]"
    assert "work.all-settle" in told[0]["promises"]


def test_the_schema_in_the_repository_is_that_of_the_code():
    assert (ROOT / "schema" / "scenario.schema.json").read_text() == schema()


def test_the_schema_takes_expressions_where_numbers_are_wanted_and_knows_every_invariant():
    known = json.loads(schema())

    count = known["$defs"]["Deliver"]["properties"]["count"]
    assert {"type": "string", "pattern": r"^\$\{[^{}]*\}$"} in count["anyOf"]
    names = known["$defs"]["Expect"]["properties"]["always"]["items"]["anyOf"][0]["oneOf"]
    assert {"work.all-settle", "events.none-lost"} <= {name["const"] for name in names}
    assert all(name["description"] for name in names)
