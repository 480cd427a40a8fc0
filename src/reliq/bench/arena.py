"""What a measure gets: the ground, who takes part, and somebody to tell."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from reliq.bench.contestant import Contestant
from reliq.bench.ground import Ground


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

    def in_turn(self, *, peers: bool) -> Iterator[Contestant]:
        """Give everyone a turn, in another order every round."""
        turn = list(self.contestants if peers else self.contestants[:2])
        self.dice.shuffle(turn)
        yield from turn
