"""
One kind and key, one job, however often and at whatever moments it is asked for.

A job that was made anew from a dead letter keeps its key, and is not counted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every key, and every answer to a program that asked for one that others asked for."""
    made: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for job in history.of("wal", "job"):
        if job.a.get("requeued_from") is None:
            made[job.a["kind"], job.a["key"]].append(job)
    for (kind, key), jobs in made.items():
        if len(jobs) > 1:
            yield Violation(f"{key} of {kind} is {len(jobs)} jobs", tuple(jobs[:2]))
    asked = [x for x in history.of("driver", "enqueued") if x.a["key"] is not None]
    often = Counter((x.a["kind"], x.a["key"]) for x in asked)
    for x in asked:
        own = made.get((x.a["kind"], x.a["key"]), [])
        if x.a["job"] not in {job.a["job"] for job in own}:
            yield Violation(f"{x.a['key']} was answered job {x.a['job']}", (x, *own[:1]))
        elif often[x.a["kind"], x.a["key"]] > 1:
            yield None


INVARIANT = Invariant(
    name="work.one-per-key",
    promise="a kind and key that is asked for several times is one job, and all are answered with it",
    check=check,
)
