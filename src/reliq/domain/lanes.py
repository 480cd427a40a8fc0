"""
Where the next claim starts reading: one cursor per lane, a lane being one (queue, priority).

Claiming behind the last claimed job keeps a claim from stepping over the dead index entries
of all jobs claimed before it, which an old snapshot keeps alive (without a cursor a drain
fell to a fifth of its rate; with it, it stayed). What a cursor can miss, a job committed late
with an older moment, is found from the head of the lane: by every claim that comes short, and
at least once in `HEAD_EVERY_S`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

HEAD_EVERY_S: Final = 1.0


def read_queues(text: str) -> dict[str, int | None]:
    """
    Read `urgent,default,reports:20`: what a worker claims of, and how many places it may fill.

    Raises:
        ValueError: a queue is named twice, or its places are no number of 1 and more.

    """
    queues: dict[str, int | None] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, colon, places = part.rpartition(":")
        if colon and not (name and places.isascii() and places.isdecimal() and int(places) > 0):
            raise ValueError(
                f"{part!r}: write reports:20 for a queue that takes 20 places of a worker at most, "
                "1 or more, and reports for one that may take them all"
            )
        if (queue := name or part) in queues:
            raise ValueError(f"the queue {queue!r} is named twice: once is enough")
        queues[queue] = int(places) if colon else None
    return queues


class Lane(NamedTuple):
    """One range of the index of due jobs."""

    queue: str
    priority: int


class Position(NamedTuple):
    """The last job claimed in a lane; opaque moments of the database's clock."""

    run_at: datetime
    job_id: int


HEAD: Final = Position(datetime(2000, 1, 1, tzinfo=UTC), 0)


@dataclass(slots=True)
class Lanes:
    """The lanes in the order they are claimed in, with their cursors."""

    _cursors: dict[Lane, Position] = field(default_factory=dict)
    _turn: int = 0
    _from_head_at: float = float("-inf")

    def discover(self, lanes: Iterable[Lane]) -> None:
        """Take over the lanes that have queued jobs now; a lane that is new starts at its head."""
        self._cursors = {lane: self._cursors.get(lane, HEAD) for lane in lanes}

    def order(self, now_s: float) -> list[tuple[Lane, Position]]:
        """
        List where to read, most urgent priority first.

        Queues of one priority take turns in being first. `now_s` is a monotonic clock.
        """
        if now_s - self._from_head_at >= HEAD_EVERY_S:
            self.rewind(now_s)
        queues = sorted({lane.queue for lane in self._cursors})
        self._turn += 1
        turn = {queue: (n + self._turn) % len(queues) for n, queue in enumerate(queues)}
        lanes = sorted(self._cursors, key=lambda lane: (lane.priority, turn[lane.queue]))
        return [(lane, self._cursors[lane]) for lane in lanes]

    def advance(self, lane: Lane, position: Position) -> None:
        """Remember the last job of a claim."""
        self._cursors[lane] = max(self._cursors.get(lane, HEAD), position)

    def rewind(self, now_s: float) -> None:
        """Read from the heads again: a claim came short, or the beat says so."""
        self._cursors = dict.fromkeys(self._cursors, HEAD)
        self._from_head_at = now_s
