"""
No job is tried more often than it may be, and none is given up as tried often enough too soon.

An attempt that was given back (handed back, or asked to be called again) does not count.
"""

from collections import Counter
from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim of a job but its first, and every job that died of its attempts."""
    tries = Counter[int]()
    claims: dict[int, Entry] = {}
    for x in history.of("wal", "claim", "again", "release", "dead"):
        job, before = x.a["job"], claims.get(x.a["job"])
        if x.e == "claim":
            tries[job] += 1
            claims[job] = x
            if max(tries[job], x.a["attempt"]) > _bound(x, history):
                text = f"job {job} was claimed {tries[job]} times, for attempt {x.a['attempt']}"
                yield Violation(f"{text} of {_bound(x, history)}", (before, x) if before else (x,))
            elif before:
                yield None
        elif x.e != "dead":
            tries[job] -= 1
        elif x.a["reason"] == "attempts" and before:
            bound = _bound(before, history)
            text = f"job {job} died of its attempts at attempt {x.a['attempt']} of {bound}"
            yield Violation(text, (before, x)) if x.a["attempt"] < bound else None


def _bound(claim: Entry, history: History) -> int:
    if table := history.terms.policies.get(claim.a.get("kind", "")):
        return len(table.pauses_s) + 1
    bound: int = claim.a.get("attempts_max", history.terms.attempts_max)
    return bound


INVARIANT = Invariant(
    name="retry.bounded",
    promise="a job is tried as often as its policy allows, and never more often",
    check=check,
)
