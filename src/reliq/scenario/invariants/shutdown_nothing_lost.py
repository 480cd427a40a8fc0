"""
What runs when a worker is told to stop ends in time, or is handed back; none waits for a lease.

A worker that something else hits while it stops is not judged by what comes after that.
"""

from collections.abc import Iterator

from reliq.scenario.history import FOREVER, History
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.shutdown import befell, told_to_stop


def check(history: History) -> Iterator[Violation | None]:
    """Judge every attempt that ran when its worker was told to stop."""
    told = told_to_stop(history)
    until = {p: befell(history, p, term.t) for p, term in told.items()}
    for held, _ in history.successions():
        claim, end, term = held.claim, held.end, told.get(held.claim.p)
        if term is None or (end.t if end else FOREVER) <= term.t:
            continue
        if end is not None and end.e != "lease-lost":
            yield None
        elif until[claim.p] == FOREVER:
            text = f"job {held.job} ran when {claim.p} was told to stop, and was left to lapse"
            yield Violation(text, (term, claim, end) if end else (term, claim))


INVARIANT = Invariant(
    name="shutdown.nothing-lost",
    promise="what runs at SIGTERM ends within the grace or is handed back",
    check=check,
)
