"""
A job of a kind that nobody handles stays queued, without an attempt spent, and a worker names it.

The App of the scenarios handles kinds whose name begins with `drill.`, and makes alerts only where a
scenario asks for them.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation

HANDLED: Final = "drill."


def check(history: History) -> Iterator[Violation | None]:
    """Judge every such job by the first thing that happened to it, and what was said of its kind."""
    named = {kind for x in history.of("process", "kinds.unknown") for kind in x.a["kinds"]}
    first: dict[int, Entry] = {}
    for x in history.of("wal", "claim", "dead", "write", "gone", *ENDS):
        first.setdefault(x.a["job"], x)
    for made in history.of("wal", "job"):
        job, kind = made.a["job"], made.a["kind"]
        if kind.startswith(HANDLED):
            continue
        if job in first:
            text = f"nobody handles {kind}, and job {job} met with `{first[job].e}`"
            yield Violation(text, (made, first[job]))
        elif kind not in named:
            yield Violation(f"nobody handles {kind} of job {job}, and no worker said so", (made,))
        else:
            yield None


INVARIANT = Invariant(
    name="work.unknown-kind-waits",
    promise="a job of a kind that nobody handles stays queued, unspent, and is named",
    check=check,
)
