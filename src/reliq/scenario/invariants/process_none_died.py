"""No process ends but those that were told to: to be frozen for a while is no reason to die."""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation

_DEADLY: Final = frozenset({"kill", "restart", "stop"})


def check(history: History) -> Iterator[Violation | None]:
    """Judge every process."""
    exits = {entry.p: entry for entry in history.of("process", "exited")}
    deadly: dict[str, Entry] = {}
    for fault in history.of("fault", "fired"):
        if fault.a["hits"] and _is_deadly(fault):
            deadly.setdefault(fault.a["to"], fault)
    for started in history.of("process", "started"):
        ended, hit = exits.get(started.p), deadly.get(started.p)
        if ended is None or (hit and hit.seconds_to(ended) >= -history.terms.slack_s):
            yield None
        else:
            code = ended.a["code"]
            yield Violation(f"{started.p} ended by itself with code {code}", (started, ended))


def _is_deadly(fault: Entry) -> bool:
    signal = fault.a.get("sig")
    return signal not in {"STOP", "CONT"} if signal else fault.a.get("do") in _DEADLY


INVARIANT = Invariant(
    name="process.none-died",
    promise="no process ends that was not told to",
    check=check,
)
