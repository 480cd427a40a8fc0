"""
Jobs of one group run one at a time, in the order they were enqueued in.

A job is claimed only when every job of its group that was there before it (a lower number, and
committed first) has come to its end: succeeded, dead or cancelled. A pause before a retry, a
hand-back and a lost lease are no ends. No other job of the group runs meanwhile, whatever its
number.
"""

from collections import defaultdict
from collections.abc import Iterator

from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim of a job that has a group."""
    groups: dict[int, str] = {}
    waiting: dict[str, list[Entry]] = defaultdict(list)  # not ended, in the order of commits
    running: dict[str, Entry] = {}
    for x in history.of("wal", "job", "claim", "gone", *_MOVES):
        job = x.a["job"]
        if x.e == "job":
            if (name := x.a.get("group_key")) is not None:
                groups[job] = name
                waiting[name].append(x)
            continue
        if (group := groups.get(job)) is None:
            continue
        if x.e != "claim":
            if running.get(group, x).a["job"] == job:
                running.pop(group, None)
            if x.e in _FINAL or x.e == "gone" or x.a.get("state") == "cancelled":
                waiting[group] = [made for made in waiting[group] if made.a["job"] != job]
            continue
        beside = running.get(group)
        before = [made for made in _older(waiting[group], job) if made.a["job"] < job]
        if beside is not None and beside.a["job"] != job:
            yield Violation(f"job {job} ran beside {beside.a['job']} of its group", (beside, x))
        elif before:
            text = f"job {job} was claimed before {before[0].a['job']} of its group had ended"
            yield Violation(text, (before[0], x))
        else:
            yield None
        running[group] = x


_FINAL = ("succeeded", "dead")
_MOVES = ("dead", "write", *ENDS)


def _older(waiting: list[Entry], job: int) -> Iterator[Entry]:
    """List what was committed before this job."""
    for made in waiting:
        if made.a["job"] == job:
            return
        yield made


INVARIANT = Invariant(
    name="group.order",
    promise="jobs of one group run one at a time, in the order they were enqueued in",
    check=check,
)
