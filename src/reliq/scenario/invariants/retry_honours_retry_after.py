"""A retry is never planned earlier than the upstream asked for with Retry-After."""

from collections.abc import Iterator

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.retry_when import ROUNDING_S, Heard, planned_s


def check(history: History) -> Iterator[Violation | None]:
    """Judge every failure whose answer asked for a pause, and was heard."""
    heard = Heard(history)
    for failed in history.of("wal", "failed"):
        asked_s, answer = heard.retry_after_s(failed), heard.answer(failed)
        if not (asked_s and answer and heard.is_certain(failed)):
            continue
        if failed.a["run_at"] is None or planned_s(failed) >= asked_s - ROUNDING_S:
            yield None
        else:
            text = f"job {failed.a['job']} was asked to wait {asked_s:g} s"
            yield Violation(f"{text} and planned {planned_s(failed):.6f} s", (answer, failed))


INVARIANT = Invariant(
    name="retry.honours-retry-after",
    promise="a retry never comes earlier than the upstream's Retry-After",
    check=check,
)
