"""
What cannot be helped by repeating is dead at once, and nothing else is given up as that.

Permanent are 3xx (a redirect is not followed), 4xx but 408, 425 and 429, and what a handler says
to be so.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation

_TEMPORARY: Final = frozenset({408, 425, 429})
_REDIRECT, _SERVER_ERROR = 300, 500

TOLD: Final = "told to fail for ever"
"""How the drill's handler words an error that it says is permanent."""


def check(history: History) -> Iterator[Violation | None]:
    """Judge every failure that was permanent, and every job given up as if it were."""
    deaths = {(x.a["job"], x.a["fence"]): x for x in history.of("wal", "dead")}
    for failed in history.of("wal", "failed"):
        dead = deaths.get((failed.a["job"], failed.a["fence"]))
        given_up = dead is not None and dead.a["reason"] == "permanent"
        what = f"job {failed.a['job']}: {failed.a['error']} ({failed.a['status']})"
        if is_permanent(failed):
            if failed.a["run_at"] is None and given_up:
                yield None
            else:
                yield Violation(f"{what} is permanent, and not dead of it", (failed,))
        elif dead is not None and given_up and failed.a["status"] is not None:
            yield Violation(f"{what} is temporary, and the job died of it", (failed, dead))


def is_permanent(failed: Entry) -> bool:
    """Say whether an attempt failed for ever, by the status or the error that was written down."""
    status = failed.a["status"]
    if status is None:
        return TOLD in (failed.a["error"] or "")
    return _REDIRECT <= status < _SERVER_ERROR and status not in _TEMPORARY


INVARIANT = Invariant(
    name="retry.permanent-not-retried",
    promise="a permanent error is dead at that attempt, and a temporary one is not",
    check=check,
)
