"""
After a failure the next call comes when the policy says: never earlier, and soon after.

Judged by the upstream's log alone. Its clock starts before the failure leaves the upstream and
stops when the next request has arrived, so the lower bound holds without any slack.
"""

from collections.abc import Iterator
from itertools import pairwise

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every wait between an attempt that failed and the next one."""
    terms = history.terms
    for job, calls in history.calls().items():
        for call, after in pairwise(calls):
            if not call.is_answered(well=False) or after.attempt != call.attempt + 1:
                continue
            assert call.response is not None  # noqa: S101 - is_answered says so
            waited_s = call.response.seconds_to(after.request)
            low_s, high_s = terms.pause(call.attempt)
            if low_s <= waited_s <= high_s + terms.poll_s + terms.slack_s:
                yield None
                continue
            bounds = f"{low_s:.3f} to {high_s:.3f} s (+ {terms.poll_s + terms.slack_s:.3f} s)"
            text = f"job {job} waited {waited_s:.3f} s after attempt {call.attempt}, not {bounds}"
            yield Violation(text, (call.response, after.request))


INVARIANT = Invariant(
    name="retry.when",
    promise="a retry comes after the policy's pause, never earlier, and at most one poll later",
    check=check,
)
