"""
A sender gets its answer in time, and where nothing could be stored it is asked to come again.

The bound is how long a receiver tries to store, and what the machine adds to three waits: to
send, to store, to hear. Judged are deliveries that no harm but that to the database touched: a
receiver that is frozen, or reached through a bent link, answers nobody.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import SECOND, History
from reliq.scenario.invariants.kind import Invariant, Violation

FAILED: Final = 500
"""From here on an answer says that it is the receiver's fault, not the sender's."""


def check(history: History) -> Iterator[Violation | None]:
    """Judge every delivery that was answered, and those that waited in vain for too long."""
    bound_s = history.terms.store_deadline_s + 3 * history.terms.slack_s
    touching = [
        harm
        for harm in history.harms()
        if harm.fault.a.get("link") == "ingress" or harm.fault.a["to"].startswith("receiver")
        if harm.fault.a.get("link") != "db"
    ]
    for x in history.of("driver", "delivery"):
        began, key, status = x.a["began"], x.a["key"], x.a.get("status")
        if any(harm.fault.t <= x.t and harm.until >= began for harm in touching):
            continue
        if (took_s := (x.t - began) / SECOND) > bound_s:
            yield Violation(f"{key} waited {took_s:.3f} s, not {bound_s:.3f} s", (x,))
        elif status is not None and status >= FAILED and not x.a.get("retry_after"):
            yield Violation(f"{key} was answered {status}, and not when to come again", (x,))
        elif status is not None:
            yield None


INVARIANT = Invariant(
    name="events.answered-in-time",
    promise="a sender is answered in time, and told when to come again if nothing was stored",
    check=check,
)
