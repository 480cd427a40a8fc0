"""
A delivery whose proof does not fit, or of a source that nobody knows, is refused and leaves nothing.

A genuine delivery may carry the same key; then the event is the genuine one's, and the forged
one is refused all the same.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation

REFUSED: Final = {"body": 401, "secret": 401, "source": 404}
"""What is answered, by what was forged; the sender is never told more."""


def check(history: History) -> Iterator[Violation | None]:
    """Judge every forged delivery; one that the network swallowed only by what is stored."""
    deliveries = history.of("driver", "delivery")
    genuine = {x.a["key"] for x in deliveries if "forged" not in x.a}
    stored = {event.a["key"]: event for event in history.of("wal", "event")}
    for x in deliveries:
        if "forged" not in x.a:
            continue
        key, status = x.a["key"], x.a.get("status")
        event = None if key in genuine else stored.get(key)
        if event is not None:
            yield Violation(f"{key} was forged and is event {event.a['event']}", (x, event))
        elif status not in {None, REFUSED[x.a["forged"]]}:
            yield Violation(f"{key} was forged and was answered {status}", (x,))
        else:
            yield None


INVARIANT = Invariant(
    name="events.none-forged",
    promise="a delivery that is forged, or of an unknown source, is refused and stores nothing",
    check=check,
)
