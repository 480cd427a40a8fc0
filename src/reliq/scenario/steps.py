"""The steps of a run: each waits for its trigger, does its harm, and undoes it in time."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup

from reliq.scenario import faults
from reliq.scenario.faults.kind import Scene
from reliq.scenario.faults.pg import BLOCKED
from reliq.scenario.history import Entry
from reliq.scenario.matching import matches
from reliq.scenario.model import Scenario, Step
from reliq.scenario.model.steps import Until
from reliq.scenario.recorder import Recorder
from reliq.scenario.stage.stage import Stage

LOOK_EVERY_S = 0.01


class Steps:
    """All steps of a run, played at once."""

    def __init__(
        self,
        scenario: Scenario,
        stage: Stage,
        recorder: Recorder,
        scene: Callable[[str], Scene],
        tell: Callable[[str], None],
    ) -> None:
        self._scenario, self._stage, self._recorder = scenario, stage, recorder
        self._scene, self._tell = scene, tell
        # Steps of other cells may be named: they never fire.
        self._healed = defaultdict[str, anyio.Event](anyio.Event)
        self._fired = defaultdict[str, anyio.Event](anyio.Event)
        self._due = {step.id for step in scenario.steps if step.when.at is not None}
        self._lasting: set[str] = set()
        self._is_settling = anyio.Event()

    @property
    def are_pending(self) -> bool:
        """Whether a step is on its way, or a harm on, that will end by itself."""
        return bool(self._due)

    @property
    def are_on(self) -> bool:
        """Whether any harm is on."""
        return bool(self._due or self._lasting)

    def start(self, background: TaskGroup) -> None:
        """Start waiting for every trigger."""
        for step in self._scenario.steps:
            background.start_soon(self._play, step)
        if any(step.when.point is not None for step in self._scenario.steps):
            background.start_soon(self._pass_points)

    def settle(self) -> None:
        """Undo whatever has no end of its own, now and later."""
        self._is_settling.set()

    def heal(self, step: str) -> None:
        """Undo one step's harm."""
        self._healed[step].set()

    async def _play(self, step: Step) -> None:
        trigger = await self._trigger(step)
        self._due.add(step.id)
        await anyio.sleep(self._scenario.seconds(step.delay))
        kind, scene = step.do.kind, self._scene(trigger.p if trigger else "")
        async with faults.load()[kind](getattr(step.do, kind), scene) as bite:
            fields: dict[str, Any] = {"step": step.id, "do": kind, "to": bite.to, "hits": bite.hits}
            self._recorder.record("fault", "fired", **fields, **bite.about)
            self._tell(f"fault: {step.id}: {kind} {bite.to}, hit {bite.hits}")
            self._due.update(x.id for x in self._scenario.steps if x.when.after == step.id)
            self._fired[step.id].set()
            if step.when.point is not None and bite.about.get("sig") not in {"KILL", "STOP"}:
                self._stage.processes.signal(scene.who, "CONT")  # it halted itself, for this
            if not bite.lasts:
                self._due.discard(step.id)
                return
            await self._while_on(step)
            hits = await bite.later() if bite.later is not None else bite.hits
        about: dict[str, Any] = {"step": step.id, "do": kind, "to": bite.to, "hits": hits}
        self._recorder.record("fault", "healed", **about)
        self._due.discard(step.id)
        self._lasting.discard(step.id)

    async def _while_on(self, step: Step) -> None:
        """Wait until the harm is to be undone."""
        if step.for_ is not None:
            with anyio.move_on_after(self._scenario.seconds(step.for_)):
                await self._healed[step.id].wait()
        elif step.until is not None:
            with anyio.move_on_after(self._scenario.seconds(step.until.or_after)):
                await self._until(step.until)
        else:
            self._due.discard(step.id)
            self._lasting.add(step.id)
            async with anyio.create_task_group() as either:
                for event in (self._healed[step.id], self._is_settling):
                    either.start_soon(_end_when, event, either)

    async def _until(self, until: Until) -> None:
        if (event := until.event) is not None:
            since = len(self._recorder.entries)
            await self._recorder.wait_for(event.nth, lambda seen: matches(event, seen), since)
            return
        while await self._stage.database.ask(BLOCKED) < (until.blocked_backends or 1):
            await anyio.sleep(LOOK_EVERY_S)

    async def _trigger(self, step: Step) -> Entry | None:
        when = step.when
        if when.at is not None:
            await anyio.sleep(when.at.total_seconds())
            return None
        if when.after is not None:
            await self._fired[when.after].wait()
            return None
        if (event := when.event) is not None:
            return await self._recorder.wait_for(event.nth, lambda seen: matches(event, seen))
        entry = await self._recorder.wait_for(when.nth, lambda seen: _is_at(seen, when.point or ""))
        await self._stage.processes.halted(entry.p)
        return entry

    async def _pass_points(self) -> None:
        """Let go on at once who came to a point, but for the comings that steps wait for."""
        waited = {(step.when.point, step.when.nth) for step in self._scenario.steps}
        seen: dict[str, int] = {}
        nth = 0
        while True:
            nth += 1
            entry = await self._recorder.wait_for(nth, lambda x: x.e == "drill.point")
            point = entry.a["point"]
            seen[point] = seen.get(point, 0) + 1
            if (point, seen[point]) not in waited:
                await self._stage.processes.halted(entry.p)
                self._stage.processes.signal(entry.p, "CONT")


def _is_at(entry: Entry, point: str) -> bool:
    return entry.e == "drill.point" and entry.a["point"] == point


async def _end_when(event: anyio.Event, either: TaskGroup) -> None:
    await event.wait()
    either.cancel_scope.cancel()
