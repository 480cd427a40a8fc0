"""One slot of a schedule is taken once and makes one job, whatever the number of workers."""

from collections import Counter
from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every slot that was taken."""
    jobs = {job.a["job"]: job for job in history.of("wal", "job")}
    first = [job for job in jobs.values() if job.a.get("requeued_from") is None]
    named = Counter((job.a["kind"], job.a["key"]) for job in first)
    taken: dict[tuple[str, int], Entry] = {}
    for slot in history.of("wal", "slot"):
        key = slot.a["schedule"], slot.a["at"]
        before, job = taken.setdefault(key, slot), jobs.get(slot.a["job"])
        if before is not slot:
            yield Violation(f"slot {key} of {slot.a['schedule']} was taken twice", (before, slot))
        elif job is None or job.a["xid"] != slot.a["xid"]:
            text = f"slot {key} was taken without its job {slot.a['job']}"
            yield Violation(text, (slot, job) if job else (slot,))
        elif (n := named[job.a["kind"], job.a["key"]]) != 1:
            yield Violation(f"slot {key} made {n} jobs", (slot, job))
        else:
            yield None


INVARIANT = Invariant(
    name="slot.exactly-one",
    promise="a slot of a schedule makes exactly one job",
    check=check,
)
