"""
What a picture is made of: marks in lanes, on a scale of a thousand units from left to right.

A unit is about a pixel at first sight; the page's script stretches them when it zooms. Bars have a
length in time, everything else is drawn as large at every zoom.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

WIDTH: Final = 1_000.0
"""The length of a run in units."""

_TELLS_MAX: Final = 3
_LOOSE_MAX: Final = 240
_REACH_MAX: Final = 16.0
_WELL: Final = ("done", "run")
_LETTER: Final = 6.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """
    One thing that is drawn, and the entries it stands for.

    `tells` is what a reader is told who points at it; `part` and `attempt` say what it is to
    others, for the lines between cause and effect; `numbers` are those of witnesses; a merged
    mark stands for `count` of a `kind`.
    """

    shape: str
    x: float
    y: float
    tone: str
    width: float = 0.0
    height: float = 0.0
    kind: str = ""
    head: str = ""
    count: int = 1
    tells: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    entries: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    text: str = ""
    part: str = ""
    attempt: int | None = None
    is_left: bool = False

    @property
    def title(self) -> str:
        """What it stands for, the first few entries in full."""
        return "\n".join(line for line in [self.head, *self.tells[:_TELLS_MAX]] if line)

    @property
    def has_room(self) -> bool:
        """Whether the text fits into the bar."""
        return self.shape != "bar" or self.width > text_width(self.text) + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A strip of the picture: what it shows, how high it is, and names for its rows."""

    group: str
    name: str
    height: float
    marks: tuple[Mark, ...] = ()
    rows: tuple[tuple[float, str], ...] = ()


def text_width(text: str) -> float:
    """Return about how many units a text takes."""
    return len(text) * _LETTER


def pack(
    spans: Sequence[tuple[float, float]], *, rows_max: int = 12, gap: float = 2.0
) -> list[int]:
    """
    Give each span a row in which it meets no other; where all rows are taken, the freest one.

    Spans are looked at from left to right; the answer is in the order in which they came.
    """
    free_from: list[float] = []
    rows = [0] * len(spans)
    for n in sorted(range(len(spans)), key=lambda n: spans[n]):
        left, right = spans[n]
        row = next((r for r, free in enumerate(free_from) if free <= left), len(free_from))
        if row == len(free_from) and row < rows_max:
            free_from.append(0.0)
        elif row == rows_max:
            row = min(range(rows_max), key=free_from.__getitem__)
        free_from[row] = max(free_from[row], right + gap)
        rows[n] = row
    return rows


def thin_out(lanes: Sequence[Lane]) -> list[Lane]:
    """
    Merge ticks that lie close together, as far as it takes to keep the page small.

    A run of a few hundred entries stays as it is. In a crowded one, what went well is told in
    short. Witnesses are neither merged nor shortened.
    """
    if sum(map(_count, lanes)) <= _LOOSE_MAX:
        return list(lanes)
    reach, found = 0.5, list(lanes)
    while reach <= _REACH_MAX and sum(map(_count, found)) > _LOOSE_MAX:
        found = [replace(lane, marks=tuple(_merged(lane.marks, reach))) for lane in lanes]
        reach *= 2
    return [replace(x, marks=tuple(_short(m) for m in x.marks if m.tone != "quiet")) for x in found]


def _count(lane: Lane) -> int:
    return sum(_is_loose(mark) or mark.count > 1 for mark in lane.marks)


def _is_loose(mark: Mark) -> bool:
    """Say whether it may be merged: a tick, or a bar that is hardly wider."""
    is_small = mark.shape == "tick" or (mark.shape == "bar" and mark.part == "delivery")
    return is_small and mark.width < 1 and not mark.numbers


def _short(mark: Mark) -> Mark:
    """Leave out the entries of what is as it should be; a handler's bar lies on its lease's."""
    if mark.numbers or mark.shape != "bar" or not (mark.count > 1 or mark.tone in _WELL):
        return mark
    return replace(mark, tells=(), head="" if mark.tone == "run" else mark.head)


def _merged(marks: Sequence[Mark], reach: float) -> Iterator[Mark]:
    yield from (mark for mark in marks if not _is_loose(mark))
    loose = sorted(filter(_is_loose, marks), key=lambda mark: (*_alike(mark), mark.x))
    for _, alike in groupby(loose, key=_alike):
        heap: list[Mark] = []
        for mark in alike:
            if heap and mark.x - heap[0].x > reach:
                yield _one_of(heap)
                heap = []
            heap.append(mark)
        yield _one_of(heap)


def _alike(mark: Mark) -> tuple[float, str, str]:
    return mark.y, mark.tone, mark.kind


def _one_of(heap: Sequence[Mark]) -> Mark:
    """Return one mark for all: a bar from the first to the last."""
    first, last = heap[0], heap[-1]
    if len(heap) == 1:
        return first
    return replace(
        first,
        shape="bar",
        width=last.x + last.width - first.x,
        y=first.y - (first.height / 2 if first.shape == "tick" else 0),
        count=len(heap),
        head=f"{len(heap)} x {first.kind}",
        tells=tuple(tell for mark in heap for tell in mark.tells),
        jobs=tuple(sorted({job for mark in heap for job in mark.jobs})),
        entries=tuple(i for mark in heap for i in mark.entries),
    )
