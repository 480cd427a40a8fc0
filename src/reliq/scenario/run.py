"""From a scenario to its judgement, with a folder for what the run leaves behind."""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

import asyncpg

from reliq import errors
from reliq.errors import HarnessError, ServerFailed
from reliq.scenario.conduct import conduct
from reliq.scenario.history import History
from reliq.scenario.model import Scenario
from reliq.scenario.verdict import Judgement, judge
from reliq.servers import PostgresServer

INSTALLED: Final = Path(errors.__file__).parents[1]
"""The folder from which we were imported: the processes run the same package."""

_OF_THE_RIG: Final = (
    HarnessError,
    ServerFailed,
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run: what was judged and how; `folder` is None when nothing was kept."""

    scenario: Scenario
    seed: int
    judgement: Judgement
    history: History | None
    seconds: float
    folder: Path | None


def seed_of(scenario: Scenario) -> int:
    """Return the seed of a scenario that was given none: always the same for the same name."""
    return crc32(scenario.scenario.encode()) % 10_000


async def run_scenario(
    scenario: Scenario,
    *,
    server: PostgresServer,
    seed: int,
    runs: Path,
    keep: bool = False,
    code: Path = INSTALLED,
    tell: Callable[[str], None] = lambda _: None,
) -> Result:
    """
    Run a scenario once and judge it; a harness that fails makes a void run, not an exception.

    `runs/<scenario>/<time>-<seed>/` holds history and logs, if `keep` or unless it passed.
    """
    began_s = time.monotonic()
    history = kept = None
    with tempfile.TemporaryDirectory(prefix="reliq-scenario-") as temporary:
        folder = Path(temporary)
        try:
            run = await conduct(
                scenario, server=server, seed=seed, folder=folder, code=code, tell=tell
            )
        except (*_OF_THE_RIG, ExceptionGroup) as error:
            judgement = Judgement(verdict="void", doubts=list(_reasons(error)))
        else:
            history = run.history
            judgement = judge(scenario, history, run.doubts)
            lines = [f"{entry.line()}\n" for entry in history.entries]
            (folder / "history.jsonl").write_text("".join(lines), encoding="utf-8")
        if keep or judgement.verdict != "pass":
            kept = runs / scenario.scenario / f"{time.strftime('%Y%m%dT%H%M%S')}-{seed}"
            about = {
                "scenario": scenario.scenario, "seed": seed, "code": str(code),
                "verdict": judgement.verdict, "doubts": list(judgement.doubts),
            }  # fmt: skip
            _keep(folder, kept, about)
    return Result(
        scenario=scenario, seed=seed, judgement=judgement, history=history,
        seconds=time.monotonic() - began_s, folder=kept,
    )  # fmt: skip


def _keep(folder: Path, kept: Path, about: dict[str, object]) -> None:
    (folder / "run.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, kept, dirs_exist_ok=True)


def _reasons(error: BaseException) -> Iterator[str]:
    """Name what went wrong with the rig; what is a bug of the harness is raised again."""
    if isinstance(error, ExceptionGroup):
        for one in error.exceptions:
            yield from _reasons(one)
    elif isinstance(error, TimeoutError):
        yield "the stage did not answer in time"
    elif isinstance(error, HarnessError | ServerFailed):
        yield str(error)
    elif isinstance(error, _OF_THE_RIG):
        yield f"the harness's own connection failed: {type(error).__name__}: {error}"
    else:
        raise error
