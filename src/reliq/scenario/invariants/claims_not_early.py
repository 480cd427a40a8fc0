"""No claim before its job is due, by the database's clock, whatever the workers' clocks say."""

from collections.abc import Iterator

from reliq.scenario.history import DB_SECOND, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim of a job that had to wait: one made for later, or one to be retried."""
    for made, claim in history.waits():
        if claim is None:
            continue
        due = max(made.a["run_at"], claim.a["run_at"])
        early_s = (due - claim.a["db"]) / DB_SECOND
        if early_s > 0:
            text = f"job {claim.a['job']} was claimed {early_s:.3f} s before it was due"
            yield Violation(text, (made, claim))
        elif due > made.a["db"]:
            yield None


INVARIANT = Invariant(
    name="claims.not-early",
    promise="no job is claimed before it is due",
    check=check,
)
