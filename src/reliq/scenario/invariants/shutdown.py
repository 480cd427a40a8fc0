"""Processes that were told to stop: when, and whether anything else befell them meanwhile."""

from collections.abc import Iterator

from reliq.scenario.history import FOREVER, Entry, History

_HARMLESS = frozenset({"TERM", "INT"})


def told_to_stop(history: History) -> dict[str, Entry]:
    """Return the first TERM that hit each process while it was neither frozen nor ended."""
    found: dict[str, Entry] = {}
    for signal in history.signals("TERM"):
        p = signal.a["to"]
        frozen = any(
            harm.fault.a.get("sig") == "STOP" and harm.fault.t <= signal.t < harm.until
            for harm in history.harms()
            if harm.fault.a["to"] == p
        )
        if p not in found and not frozen:
            found[p] = signal
    return found


def befell(history: History, p: str, since: int) -> int:
    """Return when something else first hit a process after `since`, or hit all; else for ever."""
    return min(_hits(history, p, since), default=FOREVER)


def _hits(history: History, p: str, since: int) -> Iterator[int]:
    known = {x.p for x in history.of("process", "started")} | {
        x.p for x in history.of("wal", "claim")
    }
    for harm in history.harms():
        fault = harm.fault
        if fault.a["to"] == p:
            hits = fault.a.get("sig") not in _HARMLESS
        else:
            hits = fault.a["to"] not in known
        if hits and harm.until >= since:
            yield max(fault.t, since)
