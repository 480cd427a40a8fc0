"""
Jobs of one group run one at a time, or as many as it may, in the order they were enqueued in.

A job that was claimed holds a place of its group until it has come to its end: succeeded, dead or
cancelled. A pause before a retry, a hand-back and a lost lease are no ends. A job is claimed only
while fewer others hold places than the group has, and while fewer of those that were there before
it (a lower number, and committed first) have not ended: one, where nothing else was said. Where
the number of places changes the largest counts: who has a place keeps it.
"""

from collections import defaultdict
from collections.abc import Iterator

from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim of a job that has a group."""
    groups: dict[int, str] = {}
    places: dict[str, int] = defaultdict(lambda: 1)
    waiting: dict[str, dict[int, Entry]] = defaultdict(dict)  # not ended, in the order of commits
    holding: dict[str, dict[int, Entry]] = defaultdict(dict)
    for x in history.of("wal", "job", "group", "claim", "gone", *_MOVES):
        if x.e == "group":
            places[x.a["group_key"]] = max(places[x.a["group_key"]], x.a["running"])
            continue
        job, group = x.a["job"], groups.get(x.a["job"])
        if x.e == "job" and (name := x.a.get("group_key")) is not None:
            groups[job] = name
            waiting[name][job] = x
        elif group is not None and _is_end(x):
            waiting[group].pop(job, None)
            holding[group].pop(job, None)
        elif group is not None and x.e == "claim":
            beside = [one for one in holding[group].values() if one.a["job"] != job]
            yield _judged(x, places[group], beside, _older(waiting[group], job))
            holding[group][job] = x


_FINAL = ("succeeded", "dead", "gone")
_MOVES = ("dead", "write", *ENDS)


def _is_end(x: Entry) -> bool:
    return x.e in _FINAL or x.a.get("state") == "cancelled"


def _judged(x: Entry, places: int, beside: list[Entry], before: list[Entry]) -> Violation | None:
    if len(beside) >= places:
        text = f"job {x.a['job']} ran beside {len(beside)} of its group, which has {places} places"
        return Violation(text, (beside[0], x))
    if len(before) >= places:
        text = f"job {x.a['job']} was claimed before {before[0].a['job']} of its group had ended"
        return Violation(text, (before[0], x))
    return None


def _older(waiting: dict[int, Entry], job: int) -> list[Entry]:
    """List those with a lower number that were committed before this job."""
    found = []
    for other, made in waiting.items():
        if other == job:
            break
        if other < job:
            found.append(made)
    return found


INVARIANT = Invariant(
    name="group.order",
    promise="jobs of one group run in the order they were enqueued in, no more at once than it may",
    check=check,
)
