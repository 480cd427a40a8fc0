"""Every sender of one key is told of the same event, the first and the last."""

from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every 2xx for a key that had been answered 2xx before."""
    first: dict[str, Entry] = {}
    for delivery in history.of("driver", "delivery"):
        key = delivery.a["key"]
        if delivery.a["outcome"] != "accepted":
            continue
        before = first.setdefault(key, delivery)
        if before is delivery:
            continue
        if before.a["event"] == delivery.a["event"]:
            yield None
        else:
            text = f"{key} was answered as {before.a['event']} and as {delivery.a['event']}"
            yield Violation(text, (before, delivery))


INVARIANT = Invariant(
    name="events.dup-same-id",
    promise="every 2xx for one key names the same event",
    check=check,
)
