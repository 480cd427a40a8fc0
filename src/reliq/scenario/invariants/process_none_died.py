"""No process ends but those that were signalled."""

from collections.abc import Iterator

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every process."""
    exits = {entry.p: entry for entry in history.of("process", "exited")}
    signalled = {entry.a["to"]: entry for entry in history.of("fault", "fired")}
    for started in history.of("process", "started"):
        ended, hit = exits.get(started.p), signalled.get(started.p)
        if ended is None or (hit is not None and hit.t <= ended.t):
            yield None
        else:
            code = ended.a["code"]
            yield Violation(f"{started.p} ended by itself with code {code}", (started, ended))


INVARIANT = Invariant(
    name="process.none-died",
    promise="no process ends that was not told to",
    check=check,
)
