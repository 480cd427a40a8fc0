"""Many runs on one rig: in turn or some at a time, told to a screen, resumed where broken off."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import anyio

from reliq.scenario.model import Scenario
from reliq.scenario.report import repeat_command
from reliq.scenario.rig import Proxy, Rig, open_rig
from reliq.scenario.run import Result, run_scenario, seed_of, slower
from reliq.scenario.verdict import Verdict
from reliq.servers import Provider

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """One run that is to be: a cell of a file, with a seed."""

    file: Path
    scenario: Scenario
    seed: int


class Screen(Protocol):
    """Where it is told what happens."""

    def tell(self, item: Item, text: str) -> None:
        """Say what happens in a run."""
        ...

    def show(self, item: Item, result: Result, repeat: str) -> None:
        """Show how a run ended."""
        ...


def items(cells: Iterable[tuple[Path, Scenario]], *, seed: int | None, repeat: int) -> list[Item]:
    """List the runs of all cells, with the seeds that follow the first."""
    return [
        Item(file, cell, (seed_of(cell) if seed is None else seed) + n)
        for file, cell in cells
        for n in range(repeat)
    ]


def first_cells(cells: Iterable[tuple[Path, Scenario]]) -> list[tuple[Path, Scenario]]:
    """Keep the first cell of each file."""
    found: dict[Path, Scenario] = {}
    for file, cell in cells:
        found.setdefault(file, cell)
    return list(found.items())


def sliced(things: Sequence[T], part: str) -> list[T]:
    """
    Take every Nth, from the Ith on (`2/3`); all of them where nothing is said.

    Raises:
        ValueError: the slice is none.

    """
    if not part:
        return list(things)
    i, _, n = part.partition("/")
    if not (i.isdigit() and n.isdigit() and 1 <= int(i) <= int(n)):
        raise ValueError(f"--slice is written I/N, from 1/N to N/N, not {part!r}")
    return list(things[int(i) - 1 :: int(n)])


@dataclass(kw_only=True)
class Series:
    """How runs are played."""

    provider: Provider
    image: str
    proxy: Proxy
    runs: Path
    jobs: int
    keep: bool
    resume: bool
    screen: Screen

    async def play(self, due: Sequence[Item]) -> list[Verdict]:
        """
        Play all of them; return their verdicts, in their order.

        A void run is repeated once, alone, at a tenth of its timescale, and both are shown; the
        second verdict counts. A violation is never repeated.
        """
        passed = self._passed() if self.resume else set()
        verdicts: dict[int, Verdict] = {}
        self.runs.mkdir(parents=True, exist_ok=True)
        async with open_rig(self.provider, image=self.image, proxy=self.proxy) as rig:
            limiter, void = anyio.CapacityLimiter(self.jobs), []

            async def one(n: int, item: Item) -> None:
                async with limiter:
                    verdicts[n] = await self._run(rig, item)
                    if verdicts[n] == "void":
                        void.append(n)

            async with anyio.create_task_group() as running:
                for n, item in enumerate(due):
                    if (item.scenario.id, item.seed) in passed:
                        verdicts[n] = "pass"
                    else:
                        running.start_soon(one, n, item)
            for n in void:
                again = replace(due[n], scenario=slower(due[n].scenario))
                self.screen.tell(again, "void: once more, alone, at a tenth of the timescale")
                verdicts[n] = await self._run(rig, again)
        self._journal.unlink(missing_ok=True)
        return [verdicts[n] for n in range(len(due))]

    async def _run(self, rig: Rig, item: Item) -> Verdict:
        result = await run_scenario(
            item.scenario, rig=rig, seed=item.seed, runs=self.runs, keep=self.keep,
            tell=lambda text: self.screen.tell(item, text),
        )  # fmt: skip
        self.screen.show(item, result, repeat_command(item.file, result, self.provider))
        verdict = result.judgement.verdict
        if verdict == "pass":
            with self._journal.open("a", encoding="utf-8") as journal:
                journal.write(json.dumps([item.scenario.id, item.seed]) + "\n")
        return verdict

    @property
    def _journal(self) -> Path:
        return self.runs / "passed.jsonl"

    def _passed(self) -> set[tuple[str, int]]:
        with suppress(FileNotFoundError):
            lines = self._journal.read_text(encoding="utf-8").splitlines()
            return {(name, seed) for name, seed in map(json.loads, lines)}
        return set()
