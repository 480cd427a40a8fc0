"""
The kill matrix: broken copies of the product, each of which a scenario must find out.

A mutant is a patch of a copy of the installed package, which the processes run instead; the
product itself holds no switch for it. The first lines of a patch say what it breaks, which
scenario must see it and which invariant must object:

    Breaks: the fence is not asked for when a job is settled
    Scenario: worker-frozen-past-its-lease
    Objects: work.fenced
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from reliq.errors import ScenarioInvalid
from reliq.scenario.load import load
from reliq.scenario.model import Scenario
from reliq.scenario.rig import INSTALLED, open_rig, open_server
from reliq.scenario.run import run_scenario, seed_of
from reliq.scenario.verdict import Verdict
from reliq.servers import PostgresServer, Provider

PATCH_S: Final = 10.0
_HEAD: Final = re.compile(r"^(Breaks|Scenario|Objects|Number): *(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A patch, the cell that must find it out, and the invariant that must object."""

    name: str
    patch: Path
    breaks: str
    scenario: Scenario
    objects: str


@dataclass(frozen=True, slots=True)
class Kill:
    """How a mutant fared: a verdict for each seed, and who objected first."""

    mutant: Mutant
    verdicts: tuple[Verdict, ...]
    objections: tuple[frozenset[str], ...]

    @property
    def is_killed(self) -> bool:
        """Whether every run was violated, and the right invariant objected in each."""
        return all(
            verdict == "violated" and self.mutant.objects in objections
            for verdict, objections in zip(self.verdicts, self.objections, strict=True)
        )

    def line(self) -> str:
        """Say it in a line."""
        mutant, n = self.mutant, self.verdicts.count("violated")
        said = "found out" if self.is_killed else f"ALIVE ({', '.join(self.verdicts)})"
        others = sorted(frozenset().union(*self.objections))
        return (
            f"{said}: {mutant.name} in {mutant.scenario.id}, {n} of {len(self.verdicts)}: "
            f"{', '.join(others) or 'nobody objected'}"
        )


def load_mutants(folder: Path, scenarios: Path) -> list[Mutant]:
    """
    Read every patch of a folder.

    Raises:
        ScenarioInvalid: a patch does not say what it must, or names no scenario of the folder.

    """
    found = []
    for patch in sorted(folder.glob("*.patch")):
        said = dict(_HEAD.findall(patch.read_text(encoding="utf-8")))
        for name in ("Breaks", "Scenario", "Objects"):
            if name not in said:
                raise ScenarioInvalid(f"{patch}:1:1: the line `{name}: …` is missing")
        file, _, cell = said["Scenario"].partition("[")
        cells = load(scenarios / f"{file}.yml")
        chosen = next((each for each in cells if not cell or each.id == said["Scenario"]), None)
        if chosen is None:
            raise ScenarioInvalid(f"{patch}:1:1: {file} has no cell [{cell}")
        found.append(
            Mutant(
                name=patch.stem,
                patch=patch,
                breaks=said["Breaks"],
                scenario=chosen,
                objects=said["Objects"],
            )
        )
    if not found:
        raise ScenarioInvalid(f"{folder}: no patches here")
    return found


@asynccontextmanager
async def patched(mutant: Mutant) -> AsyncIterator[Path]:
    """
    Make a copy of the installed package with the mutant's patch in it.

    Raises:
        ScenarioInvalid: the patch no longer fits.

    """
    with tempfile.TemporaryDirectory(prefix="reliq-mutant-") as temporary:
        code = Path(temporary)
        await anyio.to_thread.run_sync(_copy, code)
        command = ["patch", "--strip=1", "--fuzz=0", "--batch", "--directory", str(code),
                   "--input", str(mutant.patch.resolve())]  # fmt: skip
        with anyio.fail_after(PATCH_S):
            done = await anyio.run_process(command, check=False, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            said = done.stdout.decode(errors="replace")
            raise ScenarioInvalid(f"{mutant.patch}: the patch no longer fits:\n{said}")
        yield code


async def kill(
    mutant: Mutant, server: PostgresServer, *, seeds: int, provider: Provider, image: str
) -> Kill:
    """Run a mutant in its scenario, with so many seeds; all that is left of the runs is the verdicts."""
    verdicts: list[Verdict] = []
    objections = []
    async with patched(mutant) as code:
        runs = code / "runs"
        runs.mkdir()
        async with open_rig(provider, image=image, code=code, server=server) as rig:
            for n in range(seeds):
                seed = seed_of(mutant.scenario) + n
                result = await run_scenario(mutant.scenario, rig=rig, seed=seed, runs=runs)
                verdicts.append(result.judgement.verdict)
                broken = {each.name for each in result.judgement.findings if each.violations}
                objections.append(frozenset(broken))
    return Kill(mutant, tuple(verdicts), tuple(objections))


async def kill_all(
    mutants: Sequence[Mutant],
    *,
    provider: Provider,
    image: str,
    seeds: int,
    tell: Callable[[Kill], None],
) -> list[Kill]:
    """Run all of them, one after the other, on one server."""
    kills = []
    async with open_server(provider, image) as server:
        for mutant in mutants:
            found = await kill(mutant, server, seeds=seeds, provider=provider, image=image)
            tell(found)
            kills.append(found)
    return kills


def matrix(kills: Sequence[Kill]) -> str:
    """Write the kill matrix as a document."""
    rows = [
        f"| `{kill.mutant.name}` | {kill.mutant.breaks} | `{kill.mutant.scenario.id}` | "
        f"{kill.mutant.objects} | {kill.verdicts.count('violated')} of {len(kill.verdicts)} |"
        for kill in kills
    ]
    page = (files("reliq.scenario") / "kill-matrix.md").read_text(encoding="utf-8")
    return page.replace("{rows}", "\n".join(rows))


def _copy(code: Path) -> None:
    shutil.copytree(
        INSTALLED / "reliq", code / "reliq", ignore=shutil.ignore_patterns("__pycache__")
    )
