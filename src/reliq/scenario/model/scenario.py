"""One file, as one cell of its matrix."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, Literal

from pydantic import Field, PrivateAttr

from reliq.domain.duration import format_duration, parse_duration
from reliq.scenario.model.expect import Expect
from reliq.scenario.model.steps import Load, Step
from reliq.scenario.model.system import System
from reliq.scenario.model.times import Length, Real, Strict

LEASE_MIN: Final = timedelta(milliseconds=300)
POLL_MIN: Final = timedelta(milliseconds=20)
SERVER_TIMEOUT_MIN: Final = timedelta(milliseconds=5)
"""Shorter than these, after scaling, a run measures the machine and not the product."""

Problem = tuple[tuple[str | int, ...], str]
"""Where in the file, and what to do about it."""


class Scenario(Strict):
    """One cell of one file; `include`, `params`, `matrix` and `exclude` are worked in already."""

    scenario: str = Field(pattern=r"^[a-z0-9-]+$")
    title: str
    why: str
    tags: list[str] = []
    include: list[str] = []
    params: dict[str, Any] = {}
    matrix: dict[str, list[Any]] = {}
    exclude: list[dict[str, Any]] = []
    seed: int | Literal["name"] = "name"
    timescale: float = Field(default=1000.0, ge=0.01, le=1_000_000)
    wall: Real = timedelta(seconds=30)
    spawn: Literal["fork", "exec"] = "fork"
    isolation: Literal["database", "server"] = "database"
    system: System = System()
    load: list[Load] = []
    steps: list[Step] = []
    settle: "Settle"
    expect: Expect
    _cell: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def cell(self) -> Mapping[str, Any]:
        """Which cell of the matrix this is."""
        return self._cell

    @property
    def id(self) -> str:
        """Name the cell: `upstream-502-then-recovers[status=503]`."""
        if not self._cell:
            return self.scenario
        return (
            f"{self.scenario}[{','.join(f'{name}={value}' for name, value in self._cell.items())}]"
        )

    @property
    def is_harmful(self) -> bool:
        """Whether anything is broken in it: only then must a placebo be noticed."""
        return "baseline" not in self.tags

    def of_cell(self, cell: Mapping[str, Any]) -> "Scenario":
        """Return it as a cell of the matrix, without the steps of other cells."""
        steps = [
            step
            for step in self.steps
            if all(cell.get(name) == value for name, value in step.only.items())
        ]
        copy = self.model_copy(update={"steps": steps})
        copy._cell = dict(cell)  # noqa: SLF001 - our own
        return copy

    def scaled(self, product_time: timedelta) -> timedelta:
        """Return the real time of a product time: rounded up, never 0."""
        return max(product_time / self.timescale, timedelta(microseconds=1))

    def seconds(self, length: Length) -> float:
        """Return the real seconds of a length."""
        config = self.system.config
        scaled = {
            "lease": config.lease,
            "poll": config.poll,
            "reap": config.reap_every,
            "backoff": config.backoff.base,
            "slot": self.system.schedules[0].every if self.system.schedules else timedelta(0),
        }
        units = {name: self.scaled(value).total_seconds() for name, value in scaled.items()}
        return length.seconds(units | {"grace": config.grace.total_seconds()})

    def names(self) -> list[str]:
        """Name the processes: `receiver-1`, `worker-1`, …."""
        counts = (("receiver", self.system.receiver.count), ("worker", self.system.worker.count))
        return [f"{role}-{n}" for role, count in counts for n in range(1, count + 1)]

    def problems(self) -> Iterator[Problem]:
        """Say where the parts do not fit each other."""
        config = self.system.config
        for name, value, least in (
            ("lease", config.lease, LEASE_MIN),
            ("poll", config.poll, POLL_MIN),
            ("reap_every", config.reap_every, POLL_MIN),
        ):
            if (scaled := self.scaled(value)) < least:
                yield (
                    ("system", "config", name),
                    (
                        f"{name} is {format_duration(scaled)} at timescale {self.timescale:g}: "
                        f"at least {format_duration(least)}, or the run measures the machine"
                    ),
                )
        for name, text in self.system.postgres.settings.items():
            if name.endswith("_timeout") and _server_timeout(text) < SERVER_TIMEOUT_MIN:
                said = f"{name} is below {format_duration(SERVER_TIMEOUT_MIN)}"
                yield ("system", "postgres", "settings", name), said
        yield from self._problems_of_loads()
        seen: set[str] = set()
        for n, step in enumerate(self.steps):
            for at, text in self._problems_of(step, seen):
                yield ("steps", n, *at), text
            seen.add(step.id)

    def _problems_of_only(self, step: Step) -> Iterator[Problem]:
        for name, value in step.only.items():
            if name not in self.matrix:
                yield ("only",), f"{name!r} is no dimension of the matrix"
            elif value not in self.matrix[name]:
                yield (
                    ("only", name),
                    f"{value!r} is none of {self.matrix[name]}: no cell has this step",
                )

    def _problems_of_loads(self) -> Iterator[Problem]:
        for n, load in enumerate(self.load):
            key = load.deliver.key if load.deliver else load.enqueue.key if load.enqueue else None
            for word in re.findall(r"\{\w*\}", key or ""):
                if word not in {"{i}", "{copy}"}:
                    yield ("load", n), f"{word} in a key means nothing: write {{i}} or {{copy}}"

    def _problems_of(self, step: Step, before: set[str]) -> Iterator[Problem]:
        if step.id in before:
            yield ("id",), f"a second step named {step.id!r}: give it its own id"
        do, ids = step.do, {each.id for each in self.steps}
        names = {"{event.p}", "worker", "receiver", *self.names()}
        for at, name in (
            (("signal", "to"), do.signal.to if do.signal else None),
            (("start",), do.start),
            (("net", "of"), do.net.of if do.net else None),
        ):
            if name is not None and name not in names:
                known = ", ".join(sorted(names))
                yield ("do", *at), f"no process {name!r}: there are {known}"
        for at, name in ((("when", "after"), step.when.after), (("do", "heal"), do.heal)):
            if name is not None and name not in ids:
                yield at, f"no step {name!r}: there are {', '.join(sorted(ids))}"
        yield from self._problems_of_only(step)
        if (step.for_ or step.until) and not do.can_be_undone:
            yield ("do",), "this cannot be undone: take `for` and `until` away"
        if do.pg and (do.pg.restart or do.pg.freeze or do.pg.squat) and self.isolation != "server":
            yield ("do", "pg"), "others use this server: write `isolation: server`"


def _server_timeout(text: str) -> timedelta:
    """Read a time-out as Postgres does: milliseconds where no unit is given; 0 is none at all."""
    given = parse_duration(f"{text}ms" if text.strip().isdigit() else text)
    return given or timedelta.max


class Settle(Strict):
    """How long the system may take to come to rest after the load, from `after` on."""

    within: Real
    after: Length = Length()
