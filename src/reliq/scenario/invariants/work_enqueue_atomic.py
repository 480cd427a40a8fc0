"""
A job that a handler enqueues in its transaction is there exactly if the attempt succeeded.

And so is its key: whoever is told that a key is taken is told a job that is there.
"""

from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every job that a handler says it has enqueued."""
    made = {x.a["job"]: x for x in history.of("wal", "job")}
    done = {(x.a["job"], x.a["attempt"]): x for x in history.of("wal", "succeeded")}
    for x in history.of("process", "drill.placed"):
        yield _judged(x, made.get(x.a["made"]), done.get((x.a["job"], x.a["attempt"])))


def _judged(x: Entry, made: Entry | None, end: Entry | None) -> Violation | None:
    name = f"job {x.a['made']} of attempt {x.a['attempt']} of job {x.a['job']}"
    if x.a["duplicate"]:
        if made is not None and (made.a["kind"], made.a["key"]) == (x.a["kind"], x.a["key"]):
            return None
        return Violation(f"{x.a['key']} was said to be {name}, and is not", (x,))
    if end is None:
        text = f"{name} is there, and the attempt came to nothing"
        return Violation(text, (x, made)) if made else None
    if made is None or made.a["xid"] != end.a["xid"]:
        return Violation(f"{name} was not made as that succeeded", (x, end))
    return None


INVARIANT = Invariant(
    name="work.enqueue-atomic",
    promise="a job enqueued in a transaction, and its key, are there exactly if it commits",
    check=check,
)
