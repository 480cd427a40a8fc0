"""No slot is taken before its time, by the database's clock."""

from collections.abc import Iterator

from reliq.scenario.history import DB_SECOND, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every slot that was taken."""
    for slot in history.of("wal", "slot"):
        early_s = (slot.a["at"] - slot.a["db"]) / DB_SECOND
        if early_s > 0:
            text = f"slot {slot.a['at']} of {slot.a['schedule']} was taken {early_s:.3f} s early"
            yield Violation(text, (slot,))
        else:
            yield None


INVARIANT = Invariant(
    name="slot.not-early",
    promise="no slot is taken before its time",
    check=check,
)
