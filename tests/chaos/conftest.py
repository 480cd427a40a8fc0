"""
Scenario files as tests: `pytest -m chaos`, also with `-n`.

Each worker process of pytest has a Postgres server of its own (the fixture `server`), each run a
database and ports of its own. What did not pass leaves its history and logs in `runs/`.
"""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from reliq.scenario.load import load
from reliq.scenario.report import details, headline
from reliq.scenario.run import INSTALLED, Result, run_scenario, seed_of
from reliq.servers import PostgresServer

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "scenarios"
MUTANTS = Path(__file__).with_name("mutants")

Play = Callable[..., Result]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.chaos)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make an item of every scenario file and of every mutant."""
    for name, files in (
        ("scenario_file", sorted(SCENARIOS.glob("*.yml"))),
        ("mutant", sorted(MUTANTS.glob("*.patch"))),
    ):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, files, ids=[file.stem for file in files])


@pytest.fixture
def play(server: PostgresServer) -> Play:
    """Run a scenario file once."""

    def run(file: Path, *, code: Path = INSTALLED, runs: Path = ROOT / "runs") -> Result:
        scenario = load(file)

        async def conducted() -> Result:
            return await run_scenario(
                scenario, server=server, seed=seed_of(scenario), runs=runs, code=code
            )

        return anyio.run(conducted)

    return run


def told(result: Result, file: Path) -> str:
    """Put a result into words."""
    repeat = f"reliq scenario run {file.relative_to(ROOT)} --seed {result.seed}"
    return "\n".join([headline(result), *details(result, repeat=repeat)])
