"""
No claim of a job begins while an earlier one lives.

Rows only, so one clock: a claim lives until the rows say that it ended, and one that ended
because its lease was over must have lived for at least one lease.
"""

from collections.abc import Iterator

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim, together with the next one of its job."""
    for held, after in history.successions():
        claim, end, name = held.claim, held.end, f"job {held.claim.a['job']}"
        if end and end.e == "lease-lost" and claim.seconds_to(end) < history.terms.lease_s:
            age = f"{claim.seconds_to(end):.3f} s of {history.terms.lease_s:g} s"
            yield Violation(f"{name} was taken from {claim.p} after {age}", (claim, end))
        elif after and end is None:
            yield Violation(
                f"{name} was claimed again while {claim.p} had it", (claim, after.claim)
            )
        elif after and end and end.seconds_to(after.claim) < 0:
            text = f"{name} was claimed by {after.claim.p} before {claim.p}'s claim had ended"
            yield Violation(text, (claim, end, after.claim))
        else:
            yield None


INVARIANT = Invariant(
    name="claims.one-live-lease",
    promise="a job has at most one live claim",
    check=check,
)
