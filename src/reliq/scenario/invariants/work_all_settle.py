"""At rest every job has come to an end: none is forgotten in `queued` or `running`, or deleted there."""

from collections.abc import Iterator
from typing import Final

from reliq.domain.job import FINAL
from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation

_BECOMES: Final = {
    "job": "queued", "claim": "running", "succeeded": "succeeded", "dead": "dead",
    "again": "queued", "release": "queued",
}  # fmt: skip


def check(history: History) -> Iterator[Violation | None]:
    """Judge every job by the last thing that happened to it."""
    last: dict[int, Entry] = {}
    for entry in history.of("wal", "job", "claim", "dead", "write", "gone", *ENDS):
        job = entry.a["job"]
        if entry.e != "gone":
            last[job] = entry
        elif job in last and (state := state_after(last[job])) not in FINAL:
            yield Violation(f"job {job} was deleted while it was {state}", (last.pop(job), entry))
    for job, entry in last.items():
        if state_after(entry) in FINAL:
            yield None
        else:
            yield Violation(f"job {job} is {state_after(entry)} at the end", (entry,))


def state_after(x: Entry) -> str:
    """Return the state that a change left its job in."""
    if "state" in x.a:
        state: str = x.a["state"]
        return state
    if x.e in {"failed", "lease-lost"}:
        return "dead" if x.a["run_at"] is None else "queued"
    return _BECOMES[x.e]


INVARIANT = Invariant(
    name="work.all-settle",
    promise="every job comes to an end in the time allowed",
    check=check,
)
