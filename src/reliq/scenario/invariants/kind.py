"""What an invariant is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reliq.scenario.history import Entry, History


@dataclass(frozen=True, slots=True)
class Violation:
    """How a promise was broken; `witnesses` are the fewest entries that show it, at most three."""

    text: str
    witnesses: tuple[Entry, ...]


Check = Callable[[History], Iterator[Violation | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """A promise in one sentence, and the function that judges it."""

    name: str
    promise: str
    check: Check
