"""
One run: build the stage, send the load, do the harm, wait for rest, read what is there.

Nothing sleeps to let things happen. Steps wait for their trigger, the end waits for rest, and
both under deadlines; only what the file gives a length is a sleep: a `delay`, a harm that is on
`for` a while, an upstream's thinking time.
"""

import json
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from reliq.scenario.faults.kind import Scene
from reliq.scenario.history import History
from reliq.scenario.merge import merge
from reliq.scenario.model import Scenario
from reliq.scenario.recorder import Recorder
from reliq.scenario.rig import Rig
from reliq.scenario.stage.database import ClockMap
from reliq.scenario.stage.senders import Senders
from reliq.scenario.stage.stage import Stage, open_stage
from reliq.scenario.steps import LOOK_EVERY_S, Steps

SLACK_S: Final = 0.15
"""For round trips and scheduling on a quiet machine, on top of every upper bound."""

NAP_S: Final = 0.02
LATE_S: Final = 0.005
CLOCK_DRIFT_MAX_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """What a run brought: its history, and reasons why it might prove nothing."""

    history: History
    doubts: tuple[str, ...]
    is_over: bool
    """Whether it came to its end by itself: what was cut off broke no promise."""


async def conduct(
    scenario: Scenario, *, rig: Rig, seed: int, folder: Path, tell: Callable[[str], None]
) -> Run:
    """
    Run a scenario once; the dice of the load come from `seed`.

    Raises:
        HarnessError: the stage could not be built or held (also inside an ExceptionGroup).

    """
    recorder = Recorder()
    dice = random.Random(seed)  # noqa: S311 - dice of a test, to be thrown again
    async with open_stage(
        scenario, rig=rig, seed=seed, recorder=recorder, folder=folder, tell=tell
    ) as stage:
        conductor = Conductor(scenario, stage, recorder, dice, tell)
        doubts = [doubt async for doubt in conductor.play()]
        drift = clock_drift_s(stage.database.clock, await stage.database.map_clock())
        # What is said after the last look at what was committed has nothing to be compared with,
        # and what dies when the stage is torn down does not count.
        seen = [*recorder.entries, *await stage.database.committed()]
        await keep_rows_and_log(stage, folder)
    if drift > CLOCK_DRIFT_MAX_S:
        doubts.append(f"the clocks of database and harness moved apart by {drift:.3f} s")
    late_s = max((x.a["by_s"] for x in seen if x.src == "canary"), default=0.0)
    most_s = scenario.scaled(scenario.system.config.lease).total_seconds() / 2
    if _expects(scenario, "claims.lease-kept"):
        most_s -= SLACK_S  # beyond that, this judge has nothing to say
    if late_s > most_s:
        doubts.append(f"a nap of the harness ended up to {late_s:.3f} s late")
    return Run(merge(scenario, seen, slack_s=SLACK_S + late_s), tuple(doubts), conductor.is_over)


async def keep_rows_and_log(stage: Stage, folder: Path) -> None:
    """Write what stands in the tables, and what Postgres said meanwhile."""
    (folder / "rows.jsonl").write_text(await stage.database.dump(), encoding="utf-8")
    said = await anyio.to_thread.run_sync(stage.server.log)
    (folder / "logs" / "postgres.log").write_bytes(said[stage.said_before :])


class Conductor:
    """Plays one scenario on its stage."""

    def __init__(
        self,
        scenario: Scenario,
        stage: Stage,
        recorder: Recorder,
        dice: random.Random,
        tell: Callable[[str], None],
    ) -> None:
        self._scenario, self._stage, self._recorder = scenario, stage, recorder
        self._tell = tell
        self.is_over = False
        self._senders = Senders(stage, recorder, dice)

    async def play(self) -> AsyncIterator[str]:
        """Play it to the end; yields reasons why the run might prove nothing."""
        wall_s = self._scenario.wall.total_seconds()
        async with anyio.create_task_group() as background:
            steps = Steps(
                self._scenario, self._stage, self._recorder,
                lambda who: self._scene(who, steps), self._tell,
            )  # fmt: skip
            background.start_soon(self._canary)
            if _waits_for_commits(self._scenario):
                background.start_soon(self._follow)
            steps.start(background)
            with anyio.move_on_after(wall_s):
                await self._act(steps)
                self.is_over = True
            background.cancel_scope.cancel()
        if not self.is_over:
            yield f"the run was not over after {wall_s:g} s (wall)"

    def _scene(self, who: str, steps: Steps) -> Scene:
        return Scene(
            stage=self._stage, senders=self._senders, recorder=self._recorder, who=who,
            heal=steps.heal,
        )  # fmt: skip

    async def _act(self, steps: Steps) -> None:
        """Send the load, let all harm that is due end, wait for rest, and look."""
        self._tell("load: sending")
        for load in self._scenario.load:
            if load.deliver is not None:
                await self._senders.deliver(load.deliver)
            if load.enqueue is not None:
                await self._senders.enqueue(load.enqueue)
        while steps.are_pending:
            await anyio.sleep(LOOK_EVERY_S)
        steps.settle()
        while steps.are_on:
            await anyio.sleep(LOOK_EVERY_S)
        self._tell("waiting for rest")
        await anyio.sleep(self._scenario.seconds(self._scenario.settle.after))
        await self._rest(steps)
        if _expects(self._scenario, "dead.visible"):
            await self._list_dead()

    async def _rest(self, steps: Steps) -> None:
        """Return when nothing moves any more or the time allowed is over: then it is judged so."""
        with anyio.move_on_after(self._scenario.settle.within.total_seconds()):
            # Rest is a condition in a database: it can only be looked at.
            while steps.are_on or await self._moves(steps):
                await anyio.sleep(LOOK_EVERY_S)

    async def _moves(self, steps: Steps) -> bool:
        """Say whether anything is under way, also a step that the last thing to happen set off."""
        if self._stage.processes.are_leaving or await self._stage.database.count_open():
            return True
        if _waits_for_commits(self._scenario):
            self._recorder.add(await self._stage.database.committed())
        await anyio.sleep(LOOK_EVERY_S)
        return steps.are_on or not await self._stage.database.hold_still()

    async def _list_dead(self) -> None:
        """Ask, as an operator does, what has died, made anew since or not."""
        code, said = await self._stage.operate(
            "operator", "failed", "--all", "--json", "--limit", "1000"
        )
        for dead in json.loads(said)["dead"] if code == 0 else ():
            self._recorder.record(
                "driver", "dead-listed", job=dead["id"], reason=dead["reason"],
                error=dead["error"] or "",
            )  # fmt: skip

    async def _canary(self) -> None:
        """Measure how late a nap of 20 ms ends: what the machine adds to every wait."""
        while True:
            asleep_at_s = anyio.current_time()
            await anyio.sleep(NAP_S)
            late_s = anyio.current_time() - asleep_at_s - NAP_S
            if late_s > LATE_S:
                self._recorder.record("canary", "late", by_s=round(late_s, 4))

    async def _follow(self) -> None:
        """Read what is committed while it is, for the steps that wait for it."""
        while True:
            with anyio.CancelScope(shield=True):  # a slot tells everything once: all or nothing
                self._recorder.add(await self._stage.database.committed())
            await anyio.sleep(LOOK_EVERY_S)


def clock_drift_s(before: ClockMap, after: ClockMap) -> float:
    """Return how far two clock maps surely lie apart, in seconds."""
    return max(0, abs(before.offset - after.offset) - before.error - after.error) / 1e9


def _expects(scenario: Scenario, promise: str) -> bool:
    return any(name == promise for name, _ in scenario.expect.promises())


def _waits_for_commits(scenario: Scenario) -> bool:
    triggers = [step.when.event for step in scenario.steps]
    triggers += [step.until.event for step in scenario.steps if step.until is not None]
    return any(trigger is not None and trigger.src == "wal" for trigger in triggers)
