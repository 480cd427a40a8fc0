"""
One run: build the stage, send the load, do the harm, wait for rest, read what is there.

Nothing sleeps to let things happen. Steps wait for their trigger, the end waits for rest, and
both under deadlines; only what the file gives a length is a sleep: a `delay`, a STOP that `lasts`,
an upstream's thinking time.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from reliq.scenario.history import History
from reliq.scenario.matching import matches
from reliq.scenario.merge import merge, strangers
from reliq.scenario.model import Scenario, Step
from reliq.scenario.recorder import Recorder
from reliq.scenario.stage import Stage, open_stage
from reliq.scenario.stage.postgres import ClockMap
from reliq.scenario.stage.sender import deliver
from reliq.servers import PostgresServer

SLACK_S: Final = 0.15
"""For round trips and scheduling on a quiet machine, on top of every upper bound."""

NAP_S: Final = 0.02
CLOCK_DRIFT_MAX_S: Final = 0.05
LOOK_EVERY_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Run:
    """What a run brought: its history, and reasons why it might prove nothing."""

    history: History
    doubts: tuple[str, ...]


async def conduct(
    scenario: Scenario,
    *,
    server: PostgresServer,
    seed: int,
    folder: Path,
    code: Path,
    tell: Callable[[str], None],
) -> Run:
    """
    Run a scenario once; the dice of the load come from `seed`.

    Raises:
        HarnessError: the stage could not be built or held (also inside an ExceptionGroup).

    """
    recorder, noise = Recorder(), Noise()
    async with open_stage(
        scenario, server=server, recorder=recorder, folder=folder, code=code, tell=tell
    ) as stage:
        clock = await stage.database.map_clock()
        steps = Steps(scenario, stage, recorder, tell)
        async with anyio.create_task_group() as background:
            background.start_soon(noise.listen)
            steps.start(background)
            tell("load: sending")
            dice = random.Random(seed)  # noqa: S311 - dice of a test, to be thrown again
            for load in scenario.load:
                await deliver(load.deliver, stage=stage, recorder=recorder, dice=dice)
            tell("waiting for rest")
            await _rest(scenario, stage, steps)
            background.cancel_scope.cancel()
        steps.heal()
        drift = clock_drift_s(clock, await stage.database.map_clock())
        seen = recorder.entries  # before the stage is torn down: what dies then does not count
        rows = await stage.database.read(clock)
    doubts = []
    if drift > CLOCK_DRIFT_MAX_S:
        doubts.append(f"the clocks of database and harness moved apart by {drift:.3f} s")
    if noise.worst_s > scenario.scaled(scenario.system.config.lease).total_seconds() / 2:
        doubts.append(f"the machine woke the harness up to {noise.worst_s:.3f} s late")
    history = merge(scenario, seen, rows, slack_s=SLACK_S + noise.worst_s)
    return Run(history, (*doubts, *strangers(scenario, history)))


class Noise:
    """How late a nap of 20 ms ends: what the machine adds to every wait."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def listen(self) -> None:
        """Nap until cancelled."""
        while True:
            asleep_at_s = anyio.current_time()
            await anyio.sleep(NAP_S)
            self.worst_s = max(self.worst_s, anyio.current_time() - asleep_at_s - NAP_S)


class Steps:
    """The faults: each waits for its trigger, then does its harm and says whom it hit."""

    def __init__(
        self, scenario: Scenario, stage: Stage, recorder: Recorder, tell: Callable[[str], None]
    ) -> None:
        self._steps, self._stage = scenario.steps, stage
        self._recorder, self._tell = recorder, tell
        self._due = {step.id for step in scenario.steps if step.when.at is not None}

    @property
    def are_pending(self) -> bool:
        """Say whether a step is on its way that will come, whatever the system does."""
        return bool(self._due)

    def start(self, background: anyio.abc.TaskGroup) -> None:
        """Start waiting for every trigger."""
        for step in self._steps:
            background.start_soon(self._play, step)

    async def _play(self, step: Step) -> None:
        process = await self._trigger(step)
        self._due.add(step.id)
        await anyio.sleep(step.delay.total_seconds())
        signal = step.do.signal
        to = signal.to.replace("{event.p}", process)
        self._signal(step.id, to, signal.sig)
        if signal.lasts is not None:
            await anyio.sleep(signal.lasts.total_seconds())
            self._signal(step.id, to, "CONT")
        self._due.remove(step.id)

    def heal(self) -> None:
        """Let whoever is still stopped go on: a run ends with every process able to answer."""
        for name in self._stage.processes.stopped():
            self._signal("heal", name, "CONT")

    def _signal(self, step: str, to: str, sig: str) -> None:
        hits = self._stage.processes.signal(to, sig)
        self._recorder.record("fault", "fired", step=step, sig=sig, to=to, hits=hits)
        self._tell(f"fault: {step}: SIG{sig} to {to}, hit {hits}")

    async def _trigger(self, step: Step) -> str:
        if step.when.at is not None:
            await anyio.sleep(step.when.at.total_seconds())
            return ""
        event = step.when.event
        assert event is not None  # noqa: S101 - the model demands one of the two
        return (await self._recorder.wait_for(event.nth, lambda seen: matches(event, seen))).p


async def _rest(scenario: Scenario, stage: Stage, steps: Steps) -> None:
    """Return when nothing moves any more or the time allowed is over: then it is judged so."""
    with anyio.move_on_after(scenario.settle.within.total_seconds()):
        # Rest is a condition in a database: it can only be looked at.
        while steps.are_pending or await stage.database.count_open():
            await anyio.sleep(LOOK_EVERY_S)


def clock_drift_s(before: ClockMap, after: ClockMap) -> float:
    """Return how far two clock maps surely lie apart, in seconds."""
    return max(0, abs(before.offset - after.offset) - before.error - after.error) / 1e9
