"""An event and its jobs are committed together: in one transaction, or not at all."""

from collections.abc import Iterator

from reliq.scenario.history import History
from reliq.scenario.invariants.events_none_lost import is_later
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every job that was made of an event; a replay and a requeue come later by nature."""
    stored = {entry.a["event"]: entry for entry in history.of("wal", "event")}
    for job in history.of("wal", "job"):
        if job.a.get("event") is None or is_later(job):
            continue
        event, name = stored.get(job.a["event"]), f"job {job.a['job']} of event {job.a['event']}"
        if event is None:
            yield Violation(f"{name}, which was not stored", (job,))
        elif event.a["xid"] != job.a["xid"]:
            yield Violation(f"{name} was committed apart from it", (event, job))
        else:
            yield None


INVARIANT = Invariant(
    name="events.enqueue-atomic",
    promise="an event and its jobs are committed together",
    check=check,
)
