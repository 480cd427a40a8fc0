"""A worker that was told to stop claims nothing any more."""

from collections.abc import Iterator

from reliq.scenario.history import SECOND, History
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.shutdown import told_to_stop


def check(history: History) -> Iterator[Violation | None]:
    """Judge every worker that was told to stop, or said that it was, by what it claimed since."""
    slack = round(history.terms.slack_s * SECOND)
    told = {x.p: x for x in reversed(history.of("process", "worker.draining"))}
    told |= {p: x for p, x in told_to_stop(history).items() if p not in told or x.t < told[p].t}
    judged = set()
    for claim in history.of("wal", "claim"):
        word = told.get(claim.p)
        if word is None:
            continue
        if claim.t > word.t + slack:
            late_s = word.seconds_to(claim)
            text = (
                f"{claim.p} claimed job {claim.a['job']} {late_s:.3f} s after it was told to stop"
            )
            yield Violation(text, (word, claim))
        elif claim.p not in judged:
            judged.add(claim.p)
            yield None


INVARIANT = Invariant(
    name="shutdown.no-claim-after-term",
    promise="a worker that was told to stop claims nothing any more",
    check=check,
)
