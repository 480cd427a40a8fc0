"""
After the last fault jobs are picked up as fast as before the first.

Compared are the medians of how long a job that was due when it was made waited for its claim: of
the jobs claimed before the first fault, and of those made `within_s` after the last was over. So
a listener that does not come back shows, although polling hides it.
"""

from collections.abc import Iterator
from statistics import median

from reliq.scenario.history import DB_SECOND, SECOND, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(
    history: History, *, within_s: float = 2.0, factor: float = 2.0
) -> Iterator[Violation | None]:
    """Judge the median wait after the faults, once."""
    harms = [x for x in history.harms() if x.fault.a["hits"]]
    waits = [
        (made, claim)
        for made, claim in history.waits()
        if claim and made.e == "job" and made.a["run_at"] <= made.a["db"]
    ]
    if not harms:
        return
    over = max(x.until for x in harms) + within_s * SECOND
    before = [_waited_s(*x) for x in waits if x[1].t < harms[0].fault.t]
    after = sorted((x for x in waits if x[0].t >= over), key=lambda x: _waited_s(*x))
    if not before or not after:
        return
    bound_s = factor * median(before) + history.terms.slack_s
    waited_s = median(_waited_s(*x) for x in after)
    text = f"after the faults a job waits {waited_s:.3f} s for its claim, not {bound_s:.3f} s"
    yield Violation(text, after[len(after) // 2]) if waited_s > bound_s else None


def _waited_s(made: Entry, claim: Entry) -> float:
    waited: float = (claim.a["db"] - made.a["db"]) / DB_SECOND
    return waited


INVARIANT = Invariant(
    name="recover.latency",
    promise="soon after the last fault jobs are picked up as fast as before the first",
    check=check,
)
