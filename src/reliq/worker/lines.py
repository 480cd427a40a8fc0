"""The log lines about attempts: one for each that ended, and why one was lost."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import structlog

from reliq.app import ALERT_KIND
from reliq.domain.job import JobId
from reliq.domain.outcome import Bury, Requeue, Settlement, Succeed, SucceedWith
from reliq.logs import info_each
from reliq.worker.hand import Attempt, now_s

log = structlog.get_logger()

_NAMES: Final = (
    "job_id", "kind", "attempt", "fence", "settled", "waited_s", "ran_s", "error", "where",
)  # fmt: skip

NOBODY: Final[Mapping[JobId, JobId]] = MappingProxyType({})


def attempts_ended(
    items: Sequence[tuple[Attempt, Settlement]], alerts: Mapping[JobId, JobId] = NOBODY
) -> None:
    """Write the canonical line of each attempt, and one for a person about each job that died."""
    info_each(
        "attempt.ended", _NAMES, [_facts(attempt, settlement) for attempt, settlement in items]
    )
    for attempt, settlement in items:
        if isinstance(settlement, Bury):
            claim = attempt.claim
            log.error(
                "alert.died" if claim.kind.partition(".")[0] == ALERT_KIND else "job.buried",
                job_id=claim.job_id,
                kind=claim.kind,
                reason=settlement.reason,
                error=settlement.error,
                alert_id=alerts.get(claim.job_id),
            )


def _facts(attempt: Attempt, settlement: Settlement) -> tuple[object, ...]:
    claim = attempt.claim
    return (
        claim.job_id, claim.kind, claim.attempt, claim.fence, _word(settlement),
        round(claim.waited.total_seconds(), 3),
        round((attempt.ended_at_s or now_s()) - attempt.started_at_s, 3),
        None if isinstance(settlement, Succeed | SucceedWith) else settlement.error,
        attempt.where,
    )  # fmt: skip


def result_after_commit(attempt: Attempt) -> None:
    """Tell of a result that came after the handler's transaction had settled its job."""
    job_id, fence = attempt.claim.held
    log.warning("attempt.result_after_commit", job_id=job_id, fence=fence)


def returned_no_outcome(attempt: Attempt) -> None:
    """Tell of an answer that nobody keeps: its work is done, and its result was not said."""
    claim, what = attempt.claim, attempt.no_outcome
    log.warning("attempt.no_outcome", job_id=claim.job_id, kind=claim.kind, returned=what,
                hint="return None, or Done({…}) with a result")  # fmt: skip


def raised_after_commit(attempt: Attempt, error: str) -> None:
    """Tell of a handler that failed after its transaction had settled its job."""
    job_id, fence = attempt.claim.held
    log.error("attempt.raised_after_commit", job_id=job_id, fence=fence, error=error,
              where=attempt.where)  # fmt: skip


def lease_lost(attempt: Attempt, why: str) -> None:
    """Tell that a job is not ours any more: once, whoever notices it first, and then no more."""
    if attempt.is_lost:
        return
    attempt.is_lost = True
    job_id, fence = attempt.claim.held
    log.warning("lease.lost", job_id=job_id, fence=fence, why=why)


def abandoned(attempt: Attempt) -> None:
    """Tell of a handler that goes on, although its job was cancelled and it was told to stop."""
    attempt.is_lost = True
    job_id, fence = attempt.claim.held
    log.warning("attempt.abandoned", job_id=job_id, fence=fence, kind=attempt.claim.kind)


def _word(settlement: Settlement) -> str:
    match settlement:
        case Succeed() | SucceedWith():
            return "succeeded"
        case Requeue(ended=ended):
            return ended
        case Bury():
            return "dead"
