"""Samples, and what they say together: medians, and intervals of paired ratios."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Final

RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Sample:
    """What one contestant did in one round of a measure; `numbers` have their unit in the name."""

    measure: str
    who: str
    round: int
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Interval:
    """A median of paired ratios, and the ends of its bootstrap interval."""

    low: float
    mid: float
    high: float
    pairs: int


def medians(samples: Iterable[Sample], measure: str, number: str) -> dict[str, float]:
    """Return the median of a number for everyone who has it."""
    found: dict[str, list[float]] = {}
    for sample in samples:
        if sample.measure == measure and number in sample.numbers:
            found.setdefault(sample.who, []).append(sample.numbers[number])
    return {who: median(numbers) for who, numbers in found.items()}


def ratios(
    samples: Sequence[Sample], measure: str, number: str, ours: str, theirs: str
) -> list[float]:
    """Divide one's number by the other's, round by round."""
    rounds: dict[int, dict[str, float]] = {}
    for sample in samples:
        if sample.measure == measure and number in sample.numbers:
            rounds.setdefault(sample.round, {})[sample.who] = sample.numbers[number]
    return [it[ours] / it[theirs] for it in rounds.values() if ours in it and it.get(theirs)]


def interval(values: Sequence[float], seed: int = 1) -> Interval | None:
    """
    Return the 90 % bootstrap interval of the median (percentile method, Efron 1979).

    None when there are no values; one alone is its own interval.
    """
    if not values:
        return None
    dice = Random(seed)  # noqa: S311 - a resample needs no secrecy
    found = sorted(median(dice.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Interval(found[tail], median(values), found[-tail - 1], len(values))
