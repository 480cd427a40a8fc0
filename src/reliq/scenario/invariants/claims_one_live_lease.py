"""
No claim of a job begins while an earlier lease on it lives.

By the database's clock and the order of commits, so without any slack. A lease lives from its
claim until the rows say that it ended, and one that is taken away must be over.
"""

from collections.abc import Iterator

from reliq.scenario.history import DB_SECOND, ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim, and every lease that was taken from its worker."""
    leases: dict[int, tuple[Entry, int]] = {}
    for x in history.of("wal", "claim", "renew", *ENDS):
        job, (held, until) = x.a["job"], leases.get(x.a["job"], (x, 0))
        left_s = (until - x.a["db"]) / DB_SECOND
        if x.e == "claim":
            broken = left_s > 0
            leases[job] = x, x.a["lease_until"]
            text = f"job {job} was claimed by {x.p} while {held.p} had it for {left_s:.3f} s more"
            yield Violation(text, (held, x)) if broken else None
        elif x.e == "renew":
            leases[job] = held, x.a["lease_until"]
        elif leases.pop(job, None) and x.e == "lease-lost" and left_s > 0:
            text = f"job {job} was taken from {held.p} {left_s:.3f} s before its lease ended"
            yield Violation(text, (held, x))


INVARIANT = Invariant(
    name="claims.one-live-lease",
    promise="a job has at most one live lease",
    check=check,
)
