"""
Jobs of a queue with a rate start no faster: in any stretch of time a burst, and the rate times it.

A claim that had to wait for another asks for the time it began at, so a stretch is measured
between the latest moments that were asked for until its ends, in the order of commits.
"""

from collections import defaultdict
from collections.abc import Iterator

from reliq.scenario.history import DB_SECOND, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim from a queue with a rate against all before it."""
    queues: dict[int, str] = {}
    limits: dict[str, Entry] = {}
    claims: dict[str, list[tuple[float, Entry]]] = defaultdict(list)
    for x in history.of("wal", "job", "limit", "claim"):
        if x.e == "job":
            queues[x.a["job"]] = x.a["queue"]
        elif x.e == "limit":
            limits[x.a["queue"]] = x
            claims[x.a["queue"]].clear()
        elif (limit := limits.get(queues.get(x.a["job"], ""))) and limit.a["rate"] is not None:
            started = claims[limit.a["queue"]]
            latest = max(x.a["db"] / DB_SECOND, started[-1][0] if started else 0.0)
            started.append((latest, x))
            yield _judged(started, limit)


def _judged(started: list[tuple[float, Entry]], limit: Entry) -> Violation | None:
    until, last = started[-1]
    for n, (since, first) in enumerate(started):
        count, allowed = len(started) - n, limit.a["burst"] + limit.a["rate"] * (until - since)
        if count > allowed + 1e-6:
            text = f"{count} jobs of {limit.a['queue']} started in {until - since:.3f} s"
            return Violation(f"{text}, not {allowed:.1f}", (limit, first, last))
    return None


INVARIANT = Invariant(
    name="limit.rate",
    promise="jobs of a queue with a rate start no faster than its burst and its rate allow",
    check=check,
)
