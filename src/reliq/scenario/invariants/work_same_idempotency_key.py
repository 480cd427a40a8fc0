"""
All attempts at a job call with one key and one body; no two jobs share a key.

A job that was made from a dead letter goes on with the letter's key.
"""

from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every call but the first of each job, and every key that two jobs used."""
    owners: dict[str, tuple[int, Entry]] = {}
    roots: dict[int, Entry] = {}
    letters = {x.a["job"]: x.a.get("requeued_from") for x in history.of("wal", "job")}
    for job, calls in history.calls().items():
        first, root = calls[0].request, job
        while (letter := letters.get(root)) is not None and letter < root:
            root = letter
        owner, holder = owners.setdefault(first.a["key"], (root, first))
        if not first.a["key"]:
            yield Violation(f"job {job} called without a key", (first,))
        elif (old := roots.setdefault(root, first)).a["key"] != first.a["key"]:
            yield Violation(f"job {job} was made of job {root} with another key", (old, first))
        elif owner != root:
            yield Violation(f"jobs {holder.a['job']} and {job} share a key", (holder, first))
        for call in calls[1:]:
            again = call.request
            if (again.a["key"], again.a["body"]) == (first.a["key"], first.a["body"]):
                yield None
            else:
                what = "body" if again.a["key"] == first.a["key"] else "key"
                yield Violation(f"job {job} called again with another {what}", (first, again))


INVARIANT = Invariant(
    name="work.same-idempotency-key",
    promise="all attempts at a job carry the same idempotency key, and no other job does",
    check=check,
)
