"""No process ends but those that were told to: to be frozen for a while is no reason to die."""

from collections.abc import Iterator

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every process."""
    exits = {entry.p: entry for entry in history.of("process", "exited")}
    deadly = [x for x in history.of("fault", "fired") if x.a["sig"] in {"KILL", "TERM"}]
    signalled = {entry.a["to"]: entry for entry in deadly}
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
