"""
No slot is taken before its time, by the database's clock.

A worker reads that clock and then takes the slot, in two statements: where the clock was set back
between them, the one it read counts.
"""

from collections.abc import Iterator

from reliq.scenario.history import DB_SECOND, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every slot that was taken."""
    jumps = [x for x in history.of("fault", "fired") if x.a["do"] == "clock"]
    slack_s = history.terms.slack_s
    for slot in history.of("wal", "slot"):
        early_s = (slot.a["at"] - slot.a["db"]) / DB_SECOND
        back_s = [-x.a["jump_s"] for x in jumps if abs(x.seconds_to(slot)) <= slack_s]
        if early_s > max([0.0, *back_s]):
            text = f"slot {slot.a['at']} of {slot.a['schedule']} was taken {early_s:.3f} s early"
            yield Violation(text, (slot,))
        else:
            yield None


INVARIANT = Invariant(
    name="slot.not-early",
    promise="no slot is taken before its time",
    check=check,
)
