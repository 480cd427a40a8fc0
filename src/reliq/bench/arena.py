"""What a measure gets: the ground, who takes part, and somebody to tell."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from reliq.bench.contestant import Contestant
from reliq.bench.ground import Ground

FEW: Final = 3
"""Rounds of what no goal is about."""

SLOW: Final = 8_000
"""Who drains fewer jobs a second is no rival, and takes the longest."""


@dataclass(slots=True, kw_only=True)
class Arena:
    """`progress` keeps (measure, who, seconds, jobs so far) of drains, for the picture."""

    ground: Ground
    contestants: Sequence[Contestant]
    is_small: bool
    tell: Callable[[str], None]
    dice: Random
    rates: dict[str, float] = field(default_factory=dict)
    """Jobs a second of each, the best so far: how many make a short round."""
    progress: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def in_turn(self, number: int, *, peers: bool) -> Iterator[Contestant]:
        """Give everyone a turn, in another order every round; the slow ones in the first few."""
        turn = [
            who
            for who in (self.contestants if peers else self.contestants[:2])
            if number <= FEW
            or who in self.contestants[:2]
            or self.rates.get(who.name, SLOW) >= SLOW
        ]
        self.dice.shuffle(turn)
        yield from turn
