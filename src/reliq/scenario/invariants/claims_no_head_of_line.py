"""
Nothing that is stuck holds up the rest: while jobs are due and a worker idles, claims go on.

Judged are the spans between one claim and the next in which a job lay due all the time. A span
breaks the promise if a worker was idle (`workers.py`) in it for longer than the bound.
"""

from collections.abc import Iterator
from itertools import pairwise

from reliq.scenario.history import FOREVER, Entry, History, moment
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.workers import idle


def check(history: History, *, bound_s: float = 1.0) -> Iterator[Violation | None]:
    """Judge every span between two claims in which a job lay due from beginning to end."""
    takers = idle(history, bound_s + history.terms.slack_s)
    oldest = _oldest(history)
    for before, after in pairwise(history.of("wal", "claim")):
        due, made = oldest.get(after.i, (FOREVER, after))
        found = takers.within(max(due, before.t), after.t)
        if found is not None:
            text = f"nobody claimed for {found[1]:.3f} s, job {made.a['job']} lay due, "
            yield Violation(f"{text}and {found[0]} was idle", (before, made, after))
        elif due <= before.t:
            yield None


def _oldest(history: History) -> dict[int, tuple[int, Entry]]:
    """Find for each claim which job had lain due longest, of this and all later ones."""
    found: dict[int, tuple[int, Entry]] = {}
    waits = [(made, claim) for made, claim in history.waits() if claim is not None]
    oldest: tuple[int, Entry] | None = None
    for made, claim in sorted(waits, key=lambda wait: wait[1].i, reverse=True):
        due = max(made.t, moment(made.a["run_at"], made, claim))
        oldest = (due, made) if oldest is None or due < oldest[0] else oldest
        found[claim.i] = oldest
    return found


INVARIANT = Invariant(
    name="claims.no-head-of-line",
    promise="while jobs are due and a worker is idle, claims go on",
    check=check,
)
