"""
After a failure the next attempt comes when the policy says: never earlier, and soon after.

The pause that was planned is judged by the database's clock alone, and exactly. An upstream's
Retry-After is a floor that is spread upwards. Soon after means: not left lying while a worker was
idle (`workers.py`) for longer than a poll.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import DB_SECOND, Call, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.workers import idle, left_lying

ROUNDING_S: Final = 2e-6
"""A pause and two moments, each rounded to whole microseconds."""


def check(history: History) -> Iterator[Violation | None]:
    """Judge every pause that was planned, and when it ended."""
    terms, heard = history.terms, Heard(history)
    takers = idle(history, terms.poll_s + terms.slack_s)
    for made, claim in history.waits():
        if made.e != "failed":
            continue
        kind = made.a.get("kind", "")
        low_s, high_s = terms.pause(made.a["attempt"], kind)
        floor_s = heard.retry_after_s(made)
        high_s = max(high_s, floor_s * (1 + terms.jitter(kind)))
        low_s = max(low_s, floor_s if heard.is_certain(made) else 0.0)
        if low_s - ROUNDING_S <= planned_s(made) <= high_s + ROUNDING_S:
            yield left_lying(takers, made, claim, history.entries[-1].t)
        else:
            text = f"job {made.a['job']}: after attempt {made.a['attempt']} a pause of "
            text += f"{planned_s(made):.6f} s was planned, not {low_s:.6f} to {high_s:.6f} s"
            yield Violation(text, (made,))


def planned_s(failed: Entry) -> float:
    """Return the pause that was planned after a failure, in seconds."""
    pause: float = (failed.a["run_at"] - failed.a["db"]) / DB_SECOND
    return pause


class Heard:
    """What the upstream answered an attempt before it failed."""

    def __init__(self, history: History) -> None:
        self._last: dict[tuple[int, int], Call] = {}
        for job, calls in history.calls().items():
            self._last |= {(job, call.attempt): call for call in calls}

    def answer(self, failed: Entry) -> Entry | None:
        """Return the last answer to an attempt, however it ended."""
        call = self._last.get((failed.a["job"], failed.a["attempt"]))
        return call.response if call else None

    def retry_after_s(self, failed: Entry) -> float:
        """Return for how many seconds the answer asked, or 0."""
        answer = self.answer(failed)
        return float(answer.a.get("retry_after_s") or 0.0) if answer else 0.0

    def is_certain(self, failed: Entry) -> bool:
        """Say whether the worker has heard the answer: the status in its rows is the answer's."""
        answer = self.answer(failed)
        return bool(
            answer
            and answer.a.get("how", "whole") == "whole"
            and failed.a["status"] == answer.a["status"]
        )


INVARIANT = Invariant(
    name="retry.when",
    promise="a retry comes after the policy's pause, never earlier, and at most one poll later",
    check=check,
)
