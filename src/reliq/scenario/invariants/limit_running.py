"""
Of a queue with a limit no more jobs run at one time than it says.

A job runs from its claim to its end, or to the end of its lease if nobody ends it before: a
lease that has ended counts against nothing. Judged by the database's clock, at every claim.
"""

from collections import defaultdict
from collections.abc import Iterator

from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim from a queue that is limited at that moment."""
    queues: dict[int, str] = {}
    most: dict[str, int | None] = {}
    running: dict[str, dict[int, Entry]] = defaultdict(dict)
    for x in history.of("wal", "job", "limit", "claim", "renew", "dead", "write", *ENDS):
        if x.e == "job":
            queues[x.a["job"]] = x.a["queue"]
            continue
        if x.e == "limit":
            most[x.a["queue"]] = x.a["max_running"]
            continue
        queue = queues.get(x.a["job"], "default")
        if x.e not in {"claim", "renew"}:
            if x.a.get("state") != "running":
                running[queue].pop(x.a["job"], None)
            continue
        running[queue][x.a["job"]] = x
        if x.e == "claim" and (limit := most.get(queue)) is not None:
            live = [one for one in running[queue].values() if one.a["lease_until"] > x.a["db"]]
            if len(live) > limit:
                yield Violation(f"{len(live)} jobs of {queue} ran at once, not {limit}", (*live,))
            else:
                yield None


INVARIANT = Invariant(
    name="limit.running",
    promise="of a queue with a limit no more jobs run at one time than it says",
    check=check,
)
