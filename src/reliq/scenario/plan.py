"""A scenario in words: what would be started, sent, broken and judged."""

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from reliq.domain.duration import format_duration
from reliq.scenario.model import Scenario, Step
from reliq.scenario.model.matching import Pattern
from reliq.scenario.stage.settings import settings


def planned(scenario: Scenario, seed: int) -> Iterator[str]:
    """Write every resolved step of a cell; lengths are real."""
    system = scenario.system
    yield f"{scenario.id}: {scenario.title} (seed {seed})"
    yield (
        f"  start  {system.receiver.count} receivers, {system.worker.count} workers of "
        f"{system.worker.concurrency}, by {scenario.spawn}, on a {scenario.isolation} of its own"
    )
    yield "  set    " + " ".join(f"{k}={v}" for k, v in settings(scenario).items() if v)
    for n, rule in enumerate(system.upstream, 1):
        yield f"  answer {n}: {_plain(rule)}"
    for n, dispatch in enumerate(system.mail or (), 1):
        yield f"  mail   {n}: {_plain(dispatch)}"
    for load in scenario.load:
        yield f"  load   {_plain(load)}"
    for step in scenario.steps:
        yield f"  step   {step.id}: {_when(step)}{_after(step, scenario)}: {_plain(step.do)}{_ends(step, scenario)}"
    yield f"  settle in {format_duration(scenario.settle.within)}"
    for name, parameters in scenario.expect.promises():
        yield f"  always {name}{f' {parameters}' if parameters else ''}"
    for wanted in scenario.expect.sometimes:
        yield f"  sometimes {wanted.what}"
    for unwanted in scenario.expect.never:
        yield f"  never  {unwanted.what}"


def listed(cells: Sequence[tuple[Path, Scenario]], *, as_json: bool) -> Iterator[str]:
    """List cells with their tags and promises, a line each."""
    for file, cell in cells:
        promises = [name for name, _ in cell.expect.promises()]
        if as_json:
            about = {"id": cell.id, "file": str(file), "title": cell.title, "tags": cell.tags}
            yield json.dumps({**about, "promises": promises})
        else:
            yield f"{cell.id}  [{' '.join(cell.tags)}]  {cell.title}: {', '.join(promises)}"


def _when(step: Step) -> str:
    when = step.when
    if when.at is not None:
        return f"at {format_duration(when.at)}"
    if when.event is not None:
        return f"at the {_nth(when.event.nth)} {_pattern(when.event)}"
    if when.point is not None:
        return f"when {when.point} is reached the {_nth(when.nth)} time"
    return f"after {when.after}"


def _after(step: Step, scenario: Scenario) -> str:
    delay_s = scenario.seconds(step.delay)
    return f" + {_seconds(delay_s)}" if delay_s else ""


def _ends(step: Step, scenario: Scenario) -> str:
    if step.for_ is not None:
        return f", for {_seconds(scenario.seconds(step.for_))}"
    return "" if step.until is None else f", until {_plain(step.until)}"


def _pattern(pattern: Pattern) -> str:
    fields = "".join(f" {name}={value}" for name, value in pattern.fields.items())
    return f"{pattern.src} {pattern.e}{fields}"


def _plain(part: Any) -> str:
    return json.dumps(part.model_dump(mode="json", exclude_defaults=True, exclude_none=True))


def _seconds(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(seconds, 6)))


def _nth(n: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(n, f"{n}th")
