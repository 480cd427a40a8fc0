"""What has succeeded, died or was cancelled never changes again, until its row is pruned."""

from collections.abc import Iterator

from reliq.domain.job import FINAL
from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.work_all_settle import state_after


def check(history: History) -> Iterator[Violation | None]:
    """Judge every job that came to its end, and every change after it."""
    final: dict[int, Entry] = {}
    for x in history.of("wal", "claim", "renew", "dead", "write", *ENDS):
        job, end = x.a["job"], final.get(x.a["job"])
        if end is None:
            if _ends(x):
                final[job] = x
                yield None
        elif not _tells_the_same(end, x):
            text = f"job {job} had come to its end (`{end.e}`) and was changed by `{x.e}`"
            yield Violation(text, (end, x))


def _ends(x: Entry) -> bool:
    return x.e != "renew" and state_after(x) in FINAL


def _tells_the_same(end: Entry, x: Entry) -> bool:
    """One change can have two entries: how the attempt ended, and that the job died of it."""
    return x.a["xid"] == end.a["xid"] and (x.e == "dead") != (end.e == "dead") and _ends(x)


INVARIANT = Invariant(
    name="work.terminal-is-final",
    promise="a job that succeeded, died or was cancelled never changes again",
    check=check,
)
