"""
Who is first in line is claimed soon: by an idle worker within a poll, by busy ones in a second.

A lane is a queue and a priority; first in it is the due job with the oldest moment, however late
it was committed. While it stands there, busy workers may claim others past it for `bound_s` at
most: later ones of its lane, and those of other lanes that are not more urgent.
"""

from bisect import insort
from collections.abc import Iterable, Iterator

from reliq.scenario.history import FOREVER, SECOND, Entry, History, moment
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.workers import idle, left_lying


def check(history: History, *, bound_s: float = 1.0) -> Iterator[Violation | None]:
    """Judge for every job who was idle while it lay due, and for every first one who was claimed."""
    lanes = {x.a["job"]: (x.a["priority"], x.a["queue"]) for x in history.of("wal", "job")}
    waits = [wait for wait in history.waits() if wait[0].a["job"] in lanes]
    claims = [claim for claim in history.of("wal", "claim") if claim.a["job"] in lanes]
    takers = idle(history, history.terms.poll_s + history.terms.slack_s)
    for made, claim in waits:
        yield left_lying(takers, made, claim, history.entries[-1].t)
    for lane in sorted(set(lanes.values())):
        later = [claim for claim in claims if lanes[claim.a["job"]][0] >= lane[0]]
        for made, since, until in _firsts(x for x in waits if lanes[x[0].a["job"]] == lane):
            late = since + round((bound_s + history.terms.slack_s) * SECOND)
            past = next((claim for claim in later if late < claim.t < until), None)
            yield _passed_over(made, since, past) if past else None


def _firsts(waits: Iterable[tuple[Entry, Entry | None]]) -> Iterator[tuple[Entry, int, int]]:
    """Find who was first of a lane, from when to when."""
    changes, line, since = [], list[tuple[int, int, Entry]](), 0
    for made, claim in waits:
        place = (made.a["run_at"], made.i, made)
        due = max(made.t, moment(made.a["run_at"], made, claim))
        changes += [(due, 0, place), (max(due, claim.t) if claim else FOREVER, 1, place)]
    for t, is_claimed, place in sorted(changes):
        first = line[:1]
        line.remove(place) if is_claimed else insort(line, place)
        if line[:1] != first:
            yield from ((made, since, t) for _, _, made in first)
            since = t


def _passed_over(made: Entry, since: int, past: Entry) -> Violation:
    text = f"job {made.a['job']} was first in line, and job {past.a['job']} was claimed past it"
    return Violation(f"{text}, {(past.t - since) / SECOND:.3f} s later", (made, past))


INVARIANT = Invariant(
    name="claims.reached-in-time",
    promise="a due job is claimed within a poll by who is idle, and passed over for a second at most",
    check=check,
)
