"""
A worker that lives keeps its leases, however long its jobs run.

Judged are the claims of processes that no fault has hit, if they lasted longer than a lease. A
machine that stalls for longer than a renewal is late is no witness against the product: then
nothing is judged.
"""

from collections.abc import Iterator

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every long claim of a process that was left alone."""
    terms = history.terms
    hit = {fault.a["to"] for fault in history.of("fault", "fired")}
    if terms.slack_s > terms.lease_s / 2:
        return
    for held, _ in history.successions():
        claim, end = held.claim, held.end
        if end is None or claim.p in hit or claim.seconds_to(end) < terms.lease_s:
            continue
        if end.e == "lease-lost":
            text = f"job {claim.a['job']} was taken from {claim.p}, which lived"
            yield Violation(text, (claim, end))
        else:
            yield None


INVARIANT = Invariant(
    name="claims.lease-kept",
    promise="a worker that lives keeps the leases of its jobs, however long they run",
    check=check,
)
