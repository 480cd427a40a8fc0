"""
A worker that lives keeps its leases, however long its jobs run within their time limit.

Judged are the claims that lasted longer than a lease and that no fault touched. A machine that
stalls for longer than a renewal is late is no witness against the product: then nothing is
judged.
"""

from collections.abc import Iterator

from reliq.scenario.history import DB_SECOND, FOREVER, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every long claim of a process that was left alone."""
    terms = history.terms
    if terms.slack_s > terms.lease_s / 2:
        return
    known = {x.p for x in history.of("process", "started")} | {
        x.p for x in history.of("wal", "claim")
    }
    hit = {x.fault.a["to"] for x in history.harms()}
    everywhere = [x for x in history.harms() if x.fault.a["to"] not in known]
    exits = {x.p: x.t for x in history.of("process", "exited")}
    for held, _ in history.successions():
        claim, end = held.claim, held.end
        if end is None or claim.p in hit or exits.get(claim.p, FOREVER) <= end.t:
            continue
        if any(x.fault.t <= end.t and x.until >= claim.t for x in everywhere):
            continue
        lasted_s = (end.a["db"] - claim.a["db"]) / DB_SECOND
        if end.e == "lease-lost" and lasted_s <= terms.time_limit_s:
            text = f"job {held.job} was taken from {claim.p}, which lived, after {lasted_s:.3f} s"
            yield Violation(text, (claim, end))
        elif end.e != "lease-lost" and lasted_s >= terms.lease_s:
            yield None


INVARIANT = Invariant(
    name="claims.lease-kept",
    promise="a worker that lives keeps the leases of its jobs, however long they run",
    check=check,
)
