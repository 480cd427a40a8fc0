"""At rest every job has come to an end: nothing is forgotten in `queued` or `running`."""

from collections.abc import Iterator

from reliq.domain.job import FINAL
from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every job."""
    for job in history.of("rows", "job"):
        if job.a["state"] in FINAL:
            yield None
        else:
            text = f"job {job.a['job']} is {job.a['state']} at the end, attempt {job.a['attempt']}"
            yield Violation(text, (job,))


INVARIANT = Invariant(
    name="work.all-settle",
    promise="every job comes to an end in the time allowed",
    check=check,
)
