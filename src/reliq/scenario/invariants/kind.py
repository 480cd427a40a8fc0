"""What an invariant is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reliq.scenario.history import Entry


@dataclass(frozen=True, slots=True)
class Violation:
    """How a promise was broken; `witnesses` are the fewest entries that show it, at most three."""

    text: str
    witnesses: tuple[Entry, ...]


Check = Callable[..., Iterator[Violation | None]]
"""Takes the history, and by keyword what a scenario may set: `- recover.latency: {within_s: 3}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """
    A promise in one sentence, and the function that judges it.

    One with `doubts` judges the witnesses, not the product: where it is broken nothing is proven
    and the run is `void`.
    """

    name: str
    promise: str
    check: Check
    doubts: bool = False
