"""One dedup key, one event, however often and at whatever moments it is delivered."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every key that was delivered more than once."""
    deliveries = Counter(delivery.a["key"] for delivery in history.of("driver", "delivery"))
    stored: dict[tuple[str, str | None], list[Entry]] = defaultdict(list)
    for event in history.of("wal", "event"):
        stored[event.a.get("source", ""), event.a["key"]].append(event)
    for (_, key), events in stored.items():
        if key is not None and len(events) > 1:
            yield Violation(f"{key} is stored as {len(events)} events", tuple(events[:2]))
        elif deliveries[key] > 1:
            yield None


INVARIANT = Invariant(
    name="events.one-per-key",
    promise="deliveries of one key make one event",
    check=check,
)
