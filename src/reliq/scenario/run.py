"""From a scenario to its judgement, with a folder for what the run leaves behind."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import anyio.to_thread
import asyncpg
from pydantic import BaseModel

from reliq.errors import HarnessError, ServerFailed
from reliq.scenario.conduct import conduct
from reliq.scenario.history import History
from reliq.scenario.model import Length, Scenario
from reliq.scenario.rig import Rig
from reliq.scenario.stored import write_history, write_run
from reliq.scenario.verdict import Judgement, judge

SLOWER: Final = 10.0
"""A void run is repeated at a tenth of its timescale: noise is then a tenth of every bound."""

_OF_THE_RIG: Final = (
    HarnessError, ServerFailed, OSError, asyncpg.PostgresError, asyncpg.InterfaceError,
)  # fmt: skip
Tell = Callable[[str], None]


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
    """Return the seed of a cell that was given none: always the same for the same name."""
    if isinstance(scenario.seed, int):
        return scenario.seed
    return crc32(scenario.id.encode()) % 10_000


async def run_scenario(
    scenario: Scenario,
    *,
    rig: Rig,
    seed: int,
    runs: Path,
    keep: bool = False,
    tell: Tell = lambda _: None,
) -> Result:
    """
    Run a scenario once and judge it; a harness that fails makes a void run, not an exception.

    `runs/<scenario>/<time>-<seed>/` holds what the run left, if `keep` or unless it passed.
    """
    began_s = time.monotonic()
    history = kept = None
    with tempfile.TemporaryDirectory(prefix="reliq-scenario-") as temporary:
        folder = Path(temporary)
        try:
            run = await conduct(scenario, rig=rig, seed=seed, folder=folder, tell=tell)
        except (*_OF_THE_RIG, ExceptionGroup) as error:
            judgement = Judgement(verdict="void", doubts=list(_reasons(error)))
        else:
            history = run.history
            judgement = Judgement(verdict="void", doubts=run.doubts)
            if run.is_over:  # in a thread: it may take longer than another run's lease
                judgement = await anyio.to_thread.run_sync(judge, scenario, history, run.doubts)
        seconds = time.monotonic() - began_s
        if keep or judgement.verdict != "pass":
            about = {
                "scenario": scenario.id, "seed": seed, "code": str(rig.code),
                "verdict": judgement.verdict, "doubts": list(judgement.doubts),
            }  # fmt: skip
            write_run(folder, scenario, about)
            if history is not None:
                write_history(folder / "history.jsonl", scenario, seed, history, judgement.doubts)
                _draw(folder / "timeline.html", scenario, seed, history, judgement)
            kept = _keep(folder, runs / scenario.scenario, seed)
    return Result(
        scenario=scenario, seed=seed, judgement=judgement, history=history, seconds=seconds,
        folder=kept,
    )  # fmt: skip


def slower(scenario: Scenario) -> Scenario:
    """
    Return a scenario at a tenth of its timescale.

    Its real times are ten times as long: of the load, the harm, the upstream and the handlers,
    and of the settings that bound real work.
    So everything stands in the same proportion to the leases as before.
    """
    names = ("wall", "load", "steps", "settle")
    changes = {name: _longer(getattr(scenario, name)) for name in names}
    config = scenario.system.config
    real = {
        name: getattr(config, name) * SLOWER for name in ("grace", "db_budget", "store_deadline")
    }
    system = scenario.system.model_copy(
        update={
            "upstream": _longer(scenario.system.upstream),
            "config": config.model_copy(update=real),
        }
    )
    copy: Scenario = scenario.model_copy(
        update={**changes, "system": system, "timescale": scenario.timescale / SLOWER}
    )
    return copy


def _longer(part: Any) -> Any:
    """Make every real time ten times as long, also the `s` of payloads, which handlers take."""
    match part:
        case timedelta():
            return part * SLOWER
        case Length():
            return replace(part, plus=part.plus * SLOWER)
        case BaseModel():
            names = type(part).model_fields
            return part.model_copy(update={name: _longer(getattr(part, name)) for name in names})
        case dict():
            return {
                name: value * SLOWER
                if name == "s" and isinstance(value, int | float)
                else _longer(value)
                for name, value in part.items()
            }
        case list():
            return [_longer(each) for each in part]
        case _:
            return part


def _draw(
    place: Path, scenario: Scenario, seed: int, history: History, judgement: Judgement
) -> None:
    from reliq.scenario.timeline import timeline  # noqa: PLC0415 - a run that passes draws nothing

    lines = [f"{judgement.verdict}: {scenario.id} (seed {seed})", scenario.why]
    page = timeline(scenario.title, lines, history, judgement.findings)
    place.write_text(page, encoding="utf-8")


def _keep(folder: Path, below: Path, seed: int) -> Path:
    """Copy what a run left to a place of its own, and let `latest` point there."""
    now = time.time()
    moment = f"{time.strftime('%Y%m%dT%H%M%S', time.localtime(now))}.{int(now % 1 * 1000):03}"
    kept = below / f"{moment}-{seed}"
    shutil.copytree(folder, kept)
    latest = below.with_name("latest")
    latest.unlink(missing_ok=True)
    latest.symlink_to(kept.relative_to(latest.parent))
    return kept


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
