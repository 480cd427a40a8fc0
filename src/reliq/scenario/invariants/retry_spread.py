"""
Pauses are spread evenly, so that jobs that failed together do not come back together.

Judged per kind and attempt number with 30 pauses or more: the Kolmogorov-Smirnov distance between their
shares of the middle pause and the even spread from 1 - jitter to 1 + jitter. If the spread is
even, sqrt(n) times the distance is above c with a chance of about 2 exp(-2 c^2) (Kolmogorov 1933;
Smirnov 1948, table for estimating the goodness of fit); c = 1.95 makes that one in a thousand.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import sqrt
from typing import Final

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.retry_when import Heard, planned_s

PAUSES_MIN: Final = 30
CRITICAL: Final = 1.95


def check(history: History) -> Iterator[Violation | None]:
    """Judge every kind and attempt number after which 30 pauses or more were planned."""
    terms, heard = history.terms, Heard(history)
    pauses: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for made, _ in history.waits():
        if made.e == "failed" and not heard.retry_after_s(made):
            pauses[made.a.get("kind", ""), made.a["attempt"]].append(made)
    for (kind, attempt), found in sorted(pauses.items()):
        low_s, high_s = terms.pause(attempt, kind)
        if len(found) < PAUSES_MIN or high_s <= low_s:
            continue
        shares = sorted((planned_s(x) - low_s) / (high_s - low_s) for x in found)
        far, bound = distance(shares), CRITICAL / sqrt(len(found))
        if far < bound:
            yield None
        else:
            text = f"{len(found)} pauses after attempt {attempt} lie {far:.3f} from an even spread"
            yield Violation(f"{text}, not below {bound:.3f}", _nearest(found))


def distance(shares: Sequence[float]) -> float:
    """Return how far a sorted sample lies from the even spread over 0 to 1."""
    n = len(shares)
    return max(max((i + 1) / n - x, x - i / n) for i, x in enumerate(shares))


def _nearest(found: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the two pauses that lie closest together."""
    return min(
        pairwise(sorted(found, key=planned_s)), key=lambda x: planned_s(x[1]) - planned_s(x[0])
    )


INVARIANT = Invariant(
    name="retry.spread",
    promise="the pauses of jobs that failed together are spread evenly",
    check=check,
)
