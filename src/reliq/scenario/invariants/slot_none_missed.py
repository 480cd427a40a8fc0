"""
No slot is missed that the schedule's rule for missed ones wants.

`all`: every slot between the first and the last that were taken. `latest`: which slot is taken
is the newest that was due; and one is left out only if no worker could look (`workers.py`) while
it was the newest. Under `none` nothing is judged.
"""

from collections.abc import Iterator
from itertools import pairwise

from reliq.scenario.history import DB_SECOND, Entry, History, ScheduleTerms, moment
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.workers import BEAT_SPREAD, Spans, able


def check(history: History) -> Iterator[Violation | None]:
    """Judge every slot that was taken but a schedule's first, and those left out before it."""
    terms = history.terms
    lookers = able(history, BEAT_SPREAD * terms.schedule_every_s + terms.slack_s)
    slots = sorted(history.of("wal", "slot"), key=lambda slot: (slot.a["at"], slot.i))
    for schedule in terms.schedules:
        own = [slot for slot in slots if slot.a["schedule"] == schedule.name]
        for before, after in pairwise(own) if schedule.missed != "none" else ():
            stale_s = (after.a["db"] - after.a["at"]) / DB_SECOND - schedule.every_s
            missed = list(_wanted(schedule, before, after, lookers))
            if missed:
                text = f"{len(missed)} slots of {schedule.name} were missed, first {missed[0]}"
                yield Violation(text, (before, after))
            elif schedule.missed == "latest" and stale_s > terms.slack_s:
                text = f"slot {after.a['at']} of {schedule.name} was taken when a newer was due"
                yield Violation(text, (after,))
            else:
                yield None


def _wanted(schedule: ScheduleTerms, before: Entry, after: Entry, lookers: Spans) -> Iterator[int]:
    """List the slots between two that were taken which the schedule wants as well."""
    every = round(schedule.every_s * DB_SECOND)
    for at in range(before.a["at"] + every, after.a["at"], every):
        due, over = moment(at, before, after), moment(at + every, before, after)
        if schedule.missed == "all" or lookers.within(due, min(over, after.t)):
            yield at
        elif due >= after.t:
            return  # a clock that was set forward by days has not shown these moments


INVARIANT = Invariant(
    name="slot.none-missed",
    promise="a missed slot is treated as its schedule says: all are made up, or the newest",
    check=check,
)
