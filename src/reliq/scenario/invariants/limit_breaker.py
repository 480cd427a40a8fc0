"""
Nothing of a queue starts while its breaker is open; then one job at a time, until one succeeds.

An open breaker's time runs by the database's clock. The one job is the probe; when it falls
silent, its lease is waited for.
"""

from collections.abc import Iterator

from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim from a queue whose breaker is open."""
    queues: dict[int, str] = {}
    opened: dict[str, Entry] = {}
    probes: dict[str, Entry] = {}
    for x in history.of("wal", "job", "breaker", "claim", "renew", *ENDS):
        if x.e == "job":
            queues[x.a["job"]] = x.a["queue"]
            continue
        if x.e == "breaker":
            opened.pop(x.a["queue"], None)
            if x.a["open_until"] is not None:
                opened[x.a["queue"]] = x
            probes.pop(x.a["queue"], None)
            continue
        queue = queues.get(x.a["job"], "")
        if x.e == "claim" and queue in opened:
            yield _judged(x, opened[queue], probes.get(queue))
            probes[queue] = x
        elif queue in probes and probes[queue].a["job"] == x.a["job"]:
            del probes[queue]
            if x.e == "renew":
                probes[queue] = x


def _judged(claim: Entry, opened: Entry, probe: Entry | None) -> Violation | None:
    job = claim.a["job"]
    if claim.a["db"] < opened.a["open_until"]:
        return Violation(f"job {job} was started while the breaker was open", (opened, claim))
    if probe is not None and probe.a["lease_until"] > claim.a["db"]:
        return Violation(f"job {job} was a second probe", (opened, probe, claim))
    return None


INVARIANT = Invariant(
    name="limit.breaker",
    promise="nothing of a queue starts while its breaker is open; then one job at a time",
    check=check,
)
