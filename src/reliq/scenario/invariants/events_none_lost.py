"""
A delivery that was answered 2xx is stored, with all the jobs that it asked for.

Stored before the answer, that is. What was refused, or never answered, may be there or not.
"""

from collections import Counter
from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every delivery that was accepted."""
    stored = {entry.a["event"]: entry for entry in history.of("wal", "event")}
    first = (job for job in history.of("wal", "job") if not is_later(job))
    jobs = Counter(job.a.get("event") for job in first)
    for delivery in history.of("driver", "delivery"):
        if delivery.a["outcome"] != "accepted":
            continue
        key, event = delivery.a["key"], stored.get(delivery.a["event"])
        if event is None or event.a["key"] != key:
            text = f"{key} was accepted as event {delivery.a['event']}, which is not there"
            yield Violation(text, (delivery, event) if event else (delivery,))
        elif delivery.seconds_to(event) > history.terms.slack_s:
            late = f"{delivery.seconds_to(event):.3f} s"
            yield Violation(f"{key} was accepted {late} before it was stored", (delivery, event))
        elif not _is_whole(delivery, has := jobs[event.a["event"]]):
            asked = delivery.a.get("asked", "?")
            text = f"{key} asked for {asked} jobs, was answered {delivery.a['jobs']} and has {has}"
            yield Violation(text, (delivery, event))
        else:
            yield None


def _is_whole(delivery: Entry, has: int) -> bool:
    """Compare the jobs that are there with those asked for, and with those answered."""
    if not delivery.a["duplicate"] and delivery.a["jobs"] != has:
        return False
    return bool(delivery.a.get("asked", has) == has)


def is_later(job: Entry) -> bool:
    """Say whether a person made the job, from a dead letter or by a replay: no answer named it."""
    return job.a.get("requeued_from") is not None or job.a["stmt"] == "replay_event"


INVARIANT = Invariant(
    name="events.none-lost",
    promise="a delivery answered 2xx is stored, with all of its jobs, before the answer",
    check=check,
)
