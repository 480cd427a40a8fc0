"""
Only who holds a job's fence changes it.

In the order of commits: what a worker writes about a job comes from the process whose claim gave
out the fence, while that claim runs. And the other way round: what a process says to have settled
(`attempt.ended`) stands in the rows under the fence that it names. Otherwise a late result of a
process that claimed the job anew itself would pass for the new attempt's.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation

_SETTLED: Final = {
    "succeeded": "succeeded", "failed": "failed", "timed_out": "failed", "dead": "failed",
    "again": "again", "handed_back": "release", "cancelled": "cancelled",
}  # fmt: skip


def check(history: History) -> Iterator[Violation | None]:
    """Judge everything that workers wrote about jobs, and everything they say they settled."""
    holders: dict[int, Entry] = {}
    over: dict[int, Entry] = {}
    for x in history.of("wal", "claim", "renew", "effect", *ENDS):
        job = x.a["job"]
        if x.e == "claim":
            holders[job] = x
            over.pop(job, None)
        if x.e not in {"claim", "lease-lost"}:
            yield _foreign(x, holders.get(job), over.get(job))
        if x.e in ENDS:
            over[job] = x
    yield from _sayings(history)


def _foreign(x: Entry, holder: Entry | None, end: Entry | None) -> Violation | None:
    what = f"{x.p or 'somebody'} wrote `{x.e}` on job {x.a['job']}"
    if holder is None:
        return Violation(f"{what}, which nobody had claimed", (x,))
    if end is not None and (x.e != "effect" or end.a["xid"] != x.a["xid"]):
        return Violation(f"{what} after its claim had ended", (holder, end, x))
    word = "attempt" if x.e == "effect" else "fence"
    if x.p == holder.p and x.a[word] == holder.a[word]:
        return None
    had = f"{holder.p} held it with {word} {holder.a[word]}"
    return Violation(f"{what} with {word} {x.a[word]}, and {had}", (holder, x))


def _sayings(history: History) -> Iterator[Violation | None]:
    ends = {(end.a["job"], end.a["fence"]): end for end in history.of("wal", *ENDS)}
    for x in history.of("process", "attempt.ended"):
        end = ends.get((x.a["job"], x.a["fence"]))
        if end is not None and end.e == _SETTLED.get(x.a["settled"]) and end.p == x.p:
            yield None
        else:
            text = f"{x.p} settled job {x.a['job']} as {x.a['settled']} under fence {x.a['fence']}"
            yield Violation(f"{text}, and the rows know nothing of it", (x, end) if end else (x,))


INVARIANT = Invariant(
    name="work.fenced",
    promise="only who holds a job's fence changes the job",
    check=check,
)
