"""
A job whose worker was killed is claimed by another within lease + reaper's beat + poll.

The last renewal came before the kill, so the lease ends at most one lease after it; then the
reaper's next look and the next poll. Judged are the claims that the victim held when it died.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation

BEAT_SPREAD: Final = 1.1
"""Workers spread their beats by a tenth, so that they do not all look at once."""


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim that a killed process left behind."""
    terms = history.terms
    bound_s = terms.lease_s + BEAT_SPREAD * terms.reap_every_s + terms.poll_s + terms.slack_s
    kills = [x for x in history.of("fault", "fired") if x.a["sig"] == "KILL" and x.a["hits"]]
    for kill in kills:
        for held, after in history.successions():
            end, name = held.end, f"job {held.claim.a['job']}"
            if held.claim.p != kill.a["to"] or (end and (end.e != "lease-lost" or end.t < kill.t)):
                continue
            taken = after.claim if after else end if end and end.a["buried"] else None
            if taken is None:
                yield Violation(f"{name} was never taken from {kill.a['to']}", (held.claim, kill))
            elif (took_s := kill.seconds_to(taken)) > bound_s:
                text = (
                    f"{name} was taken over {took_s:.3f} s after the kill, not in {bound_s:.3f} s"
                )
                yield Violation(text, (held.claim, kill, taken))
            else:
                yield None


INVARIANT = Invariant(
    name="claims.takeover-in-time",
    promise="a killed worker's job is claimed again within lease + reap interval + poll interval",
    check=check,
)
