"""
Scenario files as tests: `pytest -m chaos`, one item for each cell and seed, also with `-n`.

    [tool.pytest.ini_options]
    addopts = ["-p", "reliq.scenario.pytest_plugin"]
    testpaths = ["tests", "scenarios"]

Items have the marks `chaos` and those of their tags that are registered; the first cell of
each file has `first_cell`. Each process of pytest has a Postgres and a parent of processes of its
own, each run a database. What did not pass leaves its history and logs in `runs/`.

    --chaos-seeds N            runs of each cell, with the seeds that follow (1)
    --chaos-postgres PROVIDER  where Postgres comes from (embedded)
    --chaos-image IMAGE        the image, if it comes from a container
    --chaos-proxy PROXY        who bends links: auto, toxiproxy, builtin (auto)
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from anyio.from_thread import start_blocking_portal
from typing_extensions import override

from reliq.errors import ScenarioInvalid
from reliq.scenario.load import load
from reliq.scenario.model import Scenario
from reliq.scenario.report import details, headline, repeat_command
from reliq.scenario.rig import Rig, open_rig
from reliq.scenario.run import Result, run_scenario, seed_of, slower
from reliq.servers import IMAGE_DEFAULT

RUNS: Final = "runs"
Play = Callable[[Scenario, int], Result]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("chaos", "scenario files")
    group.addoption("--chaos-seeds", type=int, default=1, help="runs of each cell")
    group.addoption("--chaos-postgres", default="embedded", help="where Postgres comes from")
    group.addoption("--chaos-image", default=IMAGE_DEFAULT, help="if it comes from a container")
    group.addoption("--chaos-proxy", default="auto", help="who bends links")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks, and keep a place for what lasts as long as the session."""
    config.addinivalue_line("markers", "chaos: runs a scenario file against real processes")
    config.addinivalue_line("markers", "first_cell: the first cell of a scenario file")
    config.stash[_STACK] = ExitStack()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what was started."""
    config.stash[_STACK].close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """Collect `scenarios/*.yml`; names that begin with `_` are only for inclusion."""
    if file_path.suffix != ".yml" or file_path.parent.name != "scenarios":
        return None
    if file_path.name.startswith("_"):
        return None
    return ScenarioFile.from_parent(parent, path=file_path)


class ScenarioFile(pytest.File):
    """One file: an item for each cell and seed."""

    @override
    def collect(self) -> "Iterator[ScenarioItem]":
        try:
            cells = load(self.path)
        except ScenarioInvalid as error:
            raise self.CollectError(str(error)) from error
        for n, cell in enumerate(cells):
            for seed in range(self.config.getoption("--chaos-seeds")):
                name = cell.id if seed == 0 else f"{cell.id}+{seed}"
                item = ScenarioItem.from_parent(self, name=name, cell=cell, more=seed)
                item.add_marker(pytest.mark.chaos)
                if n == 0:
                    item.add_marker(pytest.mark.first_cell)
                yield item


class Unproven(Exception):
    """A run that did not pass; its text is all that a person needs."""


class ScenarioItem(pytest.Item):
    """One run: passed, or a failure that tells which promise broke."""

    def __init__(self, *, cell: Scenario, more: int, **about: Any) -> None:
        super().__init__(**about)
        self._cell, self._seed = cell, seed_of(cell) + more

    @override
    def runtest(self) -> None:
        result = _player(self.config)(self._cell, self._seed)
        if result.judgement.verdict == "void":
            self.add_report_section("call", "void", self._told(result))
            result = _player(self.config)(slower(self._cell), self._seed)
        self.user_properties.append(("verdict", result.judgement.verdict))
        self.user_properties.append(("seed", result.seed))
        if result.judgement.verdict != "pass":
            raise Unproven(self._told(result))

    @override
    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_: Any) -> Any:
        if isinstance(excinfo.value, Unproven):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    @override
    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name

    def _told(self, result: Result) -> str:
        repeat = repeat_command(self.path.relative_to(self.config.rootpath), result)
        return "\n".join([headline(result), *details(result, repeat=repeat)])


def _player(config: pytest.Config) -> Play:
    """Start what runs of this process share, with the first of them."""
    if _PLAY not in config.stash:
        stack, runs = config.stash[_STACK], config.rootpath / RUNS
        runs.mkdir(exist_ok=True)
        portal = stack.enter_context(start_blocking_portal())
        opening: AbstractContextManager[Rig] = portal.wrap_async_context_manager(
            open_rig(
                config.getoption("--chaos-postgres"),
                image=config.getoption("--chaos-image"),
                proxy=config.getoption("--chaos-proxy"),
            )
        )
        rig = stack.enter_context(opening)

        async def play(scenario: Scenario, seed: int) -> Result:
            return await run_scenario(scenario, rig=rig, seed=seed, runs=runs)

        config.stash[_PLAY] = lambda scenario, seed: portal.call(play, scenario, seed)
    return config.stash[_PLAY]


_STACK: Final = pytest.StashKey[ExitStack]()
_PLAY: Final = pytest.StashKey[Play]()
