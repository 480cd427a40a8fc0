"""A delivery that was answered 2xx is stored, with all the jobs that the answer named."""

from collections import Counter
from collections.abc import Iterator

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every delivery that was accepted."""
    stored = {entry.a["event"]: entry for entry in history.of("rows", "event")}
    jobs = Counter(entry.a["event"] for entry in history.of("rows", "job"))
    for delivery in history.of("driver", "delivery"):
        if delivery.a["outcome"] != "accepted":
            continue
        key, event = delivery.a["key"], delivery.a["event"]
        if event not in stored or stored[event].a["key"] != key:
            yield Violation(f"{key} was accepted as event {event}, which is gone", (delivery,))
        elif not delivery.a["duplicate"] and jobs[event] != delivery.a["jobs"]:
            text = f"{key} was answered {delivery.a['jobs']} jobs and has {jobs[event]}"
            yield Violation(text, (delivery, stored[event]))
        else:
            yield None


INVARIANT = Invariant(
    name="events.none-lost",
    promise="every delivery answered 2xx is stored with all its jobs",
    check=check,
)
