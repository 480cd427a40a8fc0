"""
A report has every row once: each chunk is written once, whole, as its job succeeds.

It ends once, with the rows that are there: ready if all chunks are, and soon if they are.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge each piece as it is written, and each report at its end."""
    succeeded = {x.a["xid"] for x in history.of("wal", "succeeded")}
    parts: dict[int, list[Entry]] = defaultdict(list)
    ends: dict[int, Entry] = {}
    for x in history.of("wal", "report", "part"):
        report = x.a["report"]
        if x.e == "part":
            yield _written(x, parts[report], x.a["xid"] in succeeded)
            parts[report].append(x)
        elif x.a["state"] != "running":
            yield _ended(x, parts[report], ends.get(report))
            ends[report] = x
    for x in history.of("wal", "report"):
        if x.a["report"] not in ends and _chunks(parts[x.a["report"]]) == x.a["chunks"]:
            yield Violation(f"report {x.a['report']} has all its chunks and no end", (x,))


def _written(x: Entry, before: Sequence[Entry], has_succeeded: bool) -> Violation | None:  # noqa: FBT001
    text = f"chunk {x.a['chunk']} of report {x.a['report']}"
    same = [y for y in before if y.a["chunk"] == x.a["chunk"]]
    if twice := [y for y in same if y.a["part"] == x.a["part"]]:
        return Violation(f"a part of {text} was written twice", (twice[0], x))
    if apart := [y for y in same if y.a["xid"] != x.a["xid"]]:
        return Violation(f"{text} was written by two transactions", (apart[0], x))
    if not has_succeeded:
        return Violation(f"{text} was written, and not as its job succeeded", (x,))
    return None


def _ended(x: Entry, parts: Sequence[Entry], before: Entry | None) -> Violation | None:
    text, rows = f"report {x.a['report']}", sum(y.a["rows"] for y in parts)
    if before is not None:
        return Violation(f"{text} ended twice", (before, x))
    if x.a["rows"] != rows:
        return Violation(f"{text} ended with {x.a['rows']} rows, and has {rows}", (x,))
    if (x.a["state"] == "ready") != (_chunks(parts) == x.a["chunks"]):
        return Violation(f"{text} is {x.a['state']}, and has {_chunks(parts)} chunks", (x,))
    return None


def _chunks(parts: Sequence[Entry]) -> int:
    return len({y.a["chunk"] for y in parts} - {0})


INVARIANT = Invariant(
    name="report.complete",
    promise="a report has each chunk's rows once, and is ready once, when all of them are there",
    check=check,
)
