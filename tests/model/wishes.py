"""What callers and workers say: the jobs they want, and how attempts ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

UNTRIED = ("again", "handed_back")
"""An attempt that ended like this is given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The job a caller wants; `running` is how many of its group may run at a time."""

    kind: str
    payload: Mapping[str, Any]
    key: str | None = None
    run_in: timedelta = timedelta(0)
    queue: str = "default"
    priority: int = 5
    group: str | None = None
    running: int = 1


def columns(wishes: Sequence[Wish]) -> tuple[list[Any], ...]:
    """As arrays, the way the statements take them."""
    return (
        [wish.kind for wish in wishes], [wish.payload for wish in wishes],
        [wish.key for wish in wishes], [wish.run_in for wish in wishes],
        [wish.queue for wish in wishes], [wish.priority for wish in wishes],
        [wish.group for wish in wishes], [wish.running for wish in wishes],
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """How an attempt ended whose job goes back to the queue."""

    after: timedelta
    ended: str
    error: str | None = None
    status: int | None = None

    @property
    def blames_upstream(self) -> bool | None:
        return True if self.ended in ("failed", "timed_out") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Burial:
    """How an attempt ended whose job is dead."""

    reason: str
    error: str
    ended: str = "failed"
    status: int | None = None

    @property
    def fingerprint(self) -> str:
        return self.error[:2]

    @property
    def blames_upstream(self) -> bool | None:
        return True if self.reason == "attempts" else None
