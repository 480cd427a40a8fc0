"""
What a stopping worker hands back is due at once, and claimed by who is idle.

Not a lease later, and not after a pause as if it had failed.
"""

from collections.abc import Iterator

from reliq.scenario.history import DB_SECOND, History
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.shutdown import told_to_stop
from reliq.scenario.invariants.workers import idle, left_lying


def check(history: History) -> Iterator[Violation | None]:
    """Judge every job that was handed back by a worker that had been told to stop."""
    terms, told = history.terms, told_to_stop(history)
    takers = idle(history, terms.poll_s + terms.slack_s)
    for made, claim in history.waits():
        if made.e != "release" or made.p not in told or made.t < told[made.p].t:
            continue
        late_s = (made.a["run_at"] - made.a["db"]) / DB_SECOND
        if late_s > 0:
            text = f"job {made.a['job']} was handed back to be due in {late_s:.3f} s"
            yield Violation(text, (told[made.p], made))
        else:
            yield left_lying(takers, made, claim, history.entries[-1].t)


INVARIANT = Invariant(
    name="shutdown.released-at-once",
    promise="a job that is handed back at SIGTERM is claimed by the next idle worker",
    check=check,
)
