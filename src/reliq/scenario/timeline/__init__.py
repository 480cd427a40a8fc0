"""
A run as a picture: one page that needs nothing else, `timeline.html`.

Lanes from top to bottom follow a job's way: faults, senders, receivers, commits, workers,
upstream. The picture is complete without its script, which zooms and picks a job out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from reliq.scenario.history import Entry, History
from reliq.scenario.timeline.lanes import (
    bands,
    commits,
    faults,
    rest,
    senders,
    tone_of_end,
    upstream,
)
from reliq.scenario.timeline.picture import WIDTH, Lane, pack, thin_out
from reliq.scenario.timeline.processes import processes
from reliq.scenario.timeline.scene import Scene, clean
from reliq.scenario.verdict import Finding

_ALWAYS: Final = ("receivers", "workers")
_BADGE: Final = 17.0
_TICKS: Final = 10


@dataclass(frozen=True, slots=True)
class Witness:
    """An entry that shows how a promise was broken: its number, place, words and job."""

    number: int
    i: int
    x: float
    row: int
    tell: str
    job: int | None


@dataclass(frozen=True, slots=True)
class Break:
    """One violation: how the promise was broken, and who saw it."""

    text: str
    witnesses: Sequence[Witness]


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that was broken, as often as it was."""

    name: str
    promise: str
    breaks: Sequence[Break]


@dataclass(frozen=True, slots=True)
class Chip:
    """A job one can pick, in the tone of its end."""

    job: int
    tone: str
    state: str
    is_suspect: bool


def timeline(
    title: str, lines: Sequence[str], history: History, findings: Sequence[Finding]
) -> str:
    """
    Return the page of a run: its title, the verdict in lines, what was seen, what was broken.

    It is well-formed XML as well as HTML, and fetches nothing.
    """
    broken = [finding for finding in findings if finding.violations]
    scene = Scene(history, _in_time(broken))
    lanes = thin_out(_lanes(scene))
    tops = [0.0, *accumulate(lane.height for lane in lanes)]
    places = {lane.name: (top, lane.height) for lane, top in zip(lanes, tops, strict=False)}
    witnesses = _witnesses(scene)
    environment = Environment(
        loader=PackageLoader("reliq.scenario.timeline", ""),
        autoescape=True, finalize=_printable, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined,
    )  # fmt: skip
    return environment.get_template("page.html").render(
        title=title,
        lines=lines,
        broken=[_broken(finding, witnesses) for finding in broken],
        witnesses=list(witnesses.values()),
        badge_rows=max((each.row for each in witnesses.values()), default=-1) + 1,
        badge=_BADGE,
        lanes=list(zip(lanes, tops, strict=False)),
        bands=bands(scene, places),
        height=tops[-1],
        width=WIDTH,
        chips=list(_chips(scene)),
        ticks=_ticks(scene),
        first_ms=(scene.span[0] - scene.start) / 1e6,
        last_ms=(scene.span[1] - scene.start) / 1e6,
        seen=len(history.entries),
    )


def _printable(value: object) -> object:
    """Make a value fit for a page: no characters that XML forbids, no more digits than it takes."""
    match value:
        case Markup():
            return value
        case str():
            return clean(value)
        case float():
            return f"{value:.2f}".rstrip("0").rstrip(".")
        case _:
            return value


def _lanes(scene: Scene) -> list[Lane]:
    own = processes(scene)
    found = [faults(scene), senders(scene), *_group(own, "receivers"), commits(scene),
             *_group(own, "workers"), *(x for x in own if x.group == "processes"),
             upstream(scene)]  # fmt: skip
    return [*found, *(lane for lane in [rest(scene, found)] if lane.marks)]


def _group(lanes: Sequence[Lane], group: str) -> list[Lane]:
    """Return the lanes of a group; an empty one, so that their absence is seen."""
    return [x for x in lanes if x.group == group] or [Lane(group=group, name=group, height=24.0)]


def _in_time(broken: Sequence[Finding]) -> list[Entry]:
    found = {x.i: x for each in broken for how in each.violations for x in how.witnesses}
    return sorted(found.values(), key=lambda entry: (entry.t, entry.i))


def _witnesses(scene: Scene) -> dict[int, Witness]:
    """Return the witnesses by their place in the history, their badges in rows that do not meet."""
    at = [scene.x(entry.t) for entry in scene.witnesses]
    rows = pack([(x - _BADGE / 2, x + _BADGE / 2) for x in at], rows_max=len(at) + 1)
    found = {}
    for entry, x, row in zip(scene.witnesses, at, rows, strict=True):
        number, job = scene.numbers[entry.i], next(iter(scene.jobs(entry)), None)
        found[entry.i] = Witness(number, entry.i, x, row, scene.tell(entry), job)
    return found


def _broken(finding: Finding, witnesses: dict[int, Witness]) -> Broken:
    breaks = [
        Break(each.text, [witnesses[entry.i] for entry in each.witnesses])
        for each in finding.violations
    ]
    return Broken(finding.name, finding.promise, breaks)


def _chips(scene: Scene) -> list[Chip]:
    """Return every job with how it ended at last."""
    suspects = {job for entry in scene.witnesses for job in scene.jobs(entry)}
    made = scene.history.of("wal", "job", "claim")
    ends = dict.fromkeys(sorted({job for x in made for job in scene.jobs(x)}), "never claimed")
    for job, held in scene.history.holdings().items():
        ends[job] = held[-1].end.e if held[-1].end else "held"
    ends |= {x.a["job"]: "dead" for x in scene.history.of("wal", "dead")}
    return [
        Chip(job, tone_of_end(None if state == "held" else state), state, job in suspects)
        for job, state in ends.items()
    ]


def _ticks(scene: Scene) -> list[tuple[float, str]]:
    """Return the marks of the axis at first sight, at round milliseconds."""
    first, last = ((t - scene.start) / 1e6 for t in scene.span)
    rough = (last - first) / _TICKS
    size = 10.0 ** (len(f"{int(rough)}") - 1)
    step = next(int(size) * n for n in (1, 2, 5, 10) if size * n >= rough)
    n = math.ceil(first / step)
    found = []
    while n * step < last:
        found.append(((n * step - first) / (last - first) * WIDTH, f"{n * step:,.0f}"))
        n += 1
    return [(round(x, 2), text.replace(",", "\u2009")) for x, text in found]
