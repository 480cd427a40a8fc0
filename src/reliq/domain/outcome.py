"""
From how an attempt ended to what the queue does about it: one pure function, `settle`.

A handler answers `Done` (or nothing), `Again` or `GiveUp`, or it raises; the runner adds the
endings a handler cannot speak of. An ending becomes a settlement, and the store writes each
settlement in one statement that is guarded by the fence.
"""

import hashlib
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, assert_never

from reliq.domain.job import RUN_IN_MAX, Claim
from reliq.domain.retry import Retry
from reliq.domain.text import error_class, error_text, result_json
from reliq.errors import PermanentError, TemporaryError


@dataclass(frozen=True, slots=True)
class Done:
    """
    The work is done. A handler that returns None says the same.

    `result` is kept with the job: JSON, and short (see `result_json`).
    """

    result: Any = None


@dataclass(frozen=True, slots=True)
class Again:
    """Come back later: costs no attempt, so it is bounded by nothing but the handler."""

    after: timedelta

    def __post_init__(self) -> None:
        after: object = self.after
        if not isinstance(after, timedelta) or after > RUN_IN_MAX:
            raise ValueError(f"Again takes a timedelta up to {RUN_IN_MAX}, not {self.after!r}")


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Repeating cannot help: to the dead letters at once."""

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):
            raise ValueError(f"GiveUp takes a text, not {self.reason!r}")  # noqa: TRY004


Outcome = Done | Again | GiveUp


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The handler was stopped at its kind's time limit."""

    limit: timedelta


@dataclass(frozen=True, slots=True)
class Stopped:
    """The handler was stopped because the worker is stopping: untried, as far as we know."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler was stopped because somebody wants its job to be cancelled."""


Ending = Outcome | Raised | TimedOut | Stopped | Cancelled


@dataclass(frozen=True, slots=True)
class Succeed:
    """To `succeeded`."""


@dataclass(frozen=True, slots=True)
class SucceedWith:
    """To `succeeded`, with a result as JSON: a statement of its own, for most jobs have none."""

    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """
    Back to `queued`, due in `after`; or to `cancelled`, if that was asked for: the row decides.

    `ended` is the word the attempt is recorded with: `failed`, `timed_out`, `again`,
    `handed_back` or `cancelled`; `spends` says whether the attempt counts.
    """

    after: timedelta
    ended: str
    spends: bool
    error: str | None = None
    status: int | None = None
    error_class: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bury:
    """
    To `dead`, for a person to look at.

    `reason` is one of `permanent`, `attempts`, `gave_up`, `retry_after`, `poison`.
    """

    reason: str
    ended: str
    error: str
    status: int | None = None
    error_class: str | None = None


Settlement = Succeed | SucceedWith | Requeue | Bury


def settle(ending: Ending, claim: Claim, policy: Retry, roll: float) -> Settlement:
    """
    Choose what the queue does about an ending.

    `roll` is a fair die in [0, 1). An upstream's Retry-After is a floor that jitter only adds
    to; asked to wait longer than the policy allows, the job is dead rather than early.
    """
    if not isinstance(ending, Raised):
        return _chosen(ending, claim, policy, roll)
    error = cause(ending.error)
    chosen = _chosen(Raised(error), claim, policy, roll)
    if isinstance(chosen, Requeue | Bury):
        chosen = replace(chosen, error_class=error_class(error))
    return chosen


def _chosen(ending: Ending, claim: Claim, policy: Retry, roll: float) -> Settlement:  # noqa: PLR0911 - a table
    match ending:
        case Done():
            return Succeed() if ending.result is None else SucceedWith(result_json(ending.result))
        case Again(after):
            return Requeue(after=max(after, timedelta(0)), ended="again", spends=False)
        case Stopped():
            return Requeue(after=timedelta(0), ended="handed_back", spends=False)
        case Cancelled():
            return Requeue(after=timedelta(0), ended="cancelled", spends=True)
        case GiveUp(reason):
            return Bury(reason="gave_up", ended="failed", error=error_text(reason))
        case Raised(PermanentError() as error):
            return Bury(
                reason="permanent", ended="failed", error=error_text(error), status=error.status
            )
        case Raised(TemporaryError() as error):
            return _retry(
                claim,
                policy,
                roll,
                ended="failed",
                error=error_text(error),
                status=error.status,
                floor=error.after,
            )
        case Raised(error):
            return _retry(claim, policy, roll, ended="failed", error=error_text(error))
        case TimedOut(limit):
            text = f"stopped at its time limit of {limit.total_seconds():g} s"
            return _retry(claim, policy, roll, ended="timed_out", error=text)
        case _:
            assert_never(ending)


def cause(error: BaseException) -> BaseException:
    """Take an error out of the groups that task groups wrapped it in, if it speaks for all."""
    while isinstance(error, BaseExceptionGroup) and (
        len(error.exceptions) == 1
        or all(isinstance(cause(each), PermanentError) for each in error.exceptions)
    ):
        error = error.exceptions[0]
    return error


def _retry(
    claim: Claim,
    policy: Retry,
    roll: float,
    *,
    ended: str,
    error: str,
    status: int | None = None,
    floor: timedelta | None = None,
) -> Requeue | Bury:
    if claim.attempt >= policy.attempts_max:
        return Bury(reason="attempts", ended=ended, error=error, status=status)
    pause = policy.delay(claim.attempt, roll)
    if floor is not None:
        if floor > policy.retry_after_max:
            return Bury(reason="retry_after", ended=ended, error=error, status=status)
        pause = max(pause, floor * (1 + policy.jitter * roll))
    return Requeue(after=pause, ended=ended, spends=True, error=error, status=status)


def blames_upstream(settlement: Settlement) -> bool | None:
    """Tell whether an attempt speaks against its upstream, for it (False), or of neither (None)."""
    match settlement:
        case Succeed() | SucceedWith():
            return False
        case Requeue(ended="failed" | "timed_out") | Bury(reason="attempts" | "retry_after"):
            return True
        case _:
            return None


_VARYING = re.compile(r"(?<![\w-])[\w-]*\d[\w-]*|[0-9a-f]{8,}", re.IGNORECASE)
"""Words with a digit in them (numbers, UUIDs, `evt_1Nx8`), and long runs of hex letters."""


def fingerprint(error: str) -> str:
    """
    Name an error by what stays the same from job to job: its text without numbers and ids.

    Sixteen hex digits; alerts are sent once per kind, fingerprint and window.
    """
    constant = _VARYING.sub("#", error).encode("utf-8", "surrogatepass")
    return hashlib.sha256(constant).hexdigest()[:16]
