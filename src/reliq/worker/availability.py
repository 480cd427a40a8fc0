"""
Whether the database answers, as every statement of both loops last saw it.

A worker outlives an outage of the database as long as its budget lasts; then it exits with
code 75 (a temporary failure, from `sysexits.h`) and leaves the restart to its supervisor.
"""

import threading
import time

import structlog

from reliq.errors import StoreError

log = structlog.get_logger()


class Availability:
    """Thread-safe; `away_s` counts from the first failure of an outage."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._lock = threading.Lock()
        self._away_since: float | None = None
        self._reason: str | None = "the database has not answered yet"

    def saw(self, error: StoreError | None) -> None:
        """Take note of how a statement ended; log the two edges of an outage only."""
        with self._lock:
            before, now = self._away_since, time.monotonic()
            if error is None:
                self._away_since = self._reason = None
            else:
                self._away_since = now if before is None else before
                self._reason = str(error)
        if error is not None and before is None:
            log.warning("database.away", reason=str(error))
        elif error is None and before is not None:
            log.info("database.back", away_s=round(now - before, 3))

    @property
    def reason(self) -> str | None:
        """Why the database cannot be used now; None when it can."""
        return self._reason

    @property
    def is_spent(self) -> bool:
        """Tell whether the database has been away for longer than the budget."""
        with self._lock:
            since = self._away_since
        return since is not None and time.monotonic() - since >= self._budget_s
