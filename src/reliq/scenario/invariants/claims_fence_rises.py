"""
The fence of a job grows with every claim and with nothing else; the attempt counts the tries.

A claim after a hand-back, or after a handler asked to be called again, is the same attempt; any
other claim is the next one.
"""

from collections.abc import Iterator

from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation

_ALL = ("claim", "renew", "dead", "write", *ENDS)


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim, and every other change of a job as to its fence."""
    claims: dict[int, Entry] = {}
    free: set[int] = set()
    for x in history.of("wal", *_ALL):
        job, before = x.a["job"], claims.get(x.a["job"])
        fence, attempt = (before.a["fence"], before.a["attempt"]) if before else (0, 0)
        if x.e != "claim":
            if x.e in {"again", "release"}:
                free.add(job)
            if x.a["fence"] != fence:
                text = f"job {job} has fence {x.a['fence']} without a claim, after {fence}"
                yield Violation(text, (before, x) if before else (x,))
            continue
        claims[job], due = x, attempt + (job not in free)
        free.discard(job)
        if x.a["fence"] <= fence or x.a["attempt"] != due:
            text = f"job {job} was claimed with fence {x.a['fence']}, attempt {x.a['attempt']}"
            yield Violation(f"{text}, after {fence}, {attempt}", (before, x) if before else (x,))
        else:
            yield None


INVARIANT = Invariant(
    name="claims.fence-rises",
    promise="the fence of a job rises with every claim, and its attempts are counted",
    check=check,
)
