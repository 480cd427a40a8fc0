"""The log lines about attempts: one for each that ended, and why one was lost."""

import structlog

from reliq.app import ALERT_KIND
from reliq.domain.job import JobId
from reliq.domain.outcome import Bury, Requeue, Settlement, Succeed
from reliq.worker.hand import Attempt, now_s

log = structlog.get_logger()


def attempt_ended(attempt: Attempt, settlement: Settlement, alert_id: JobId | None = None) -> None:
    """Write the canonical line of an attempt, and a second one for a person if its job died."""
    claim, error = attempt.claim, None if isinstance(settlement, Succeed) else settlement.error
    log.info(
        "attempt.ended",
        job_id=claim.job_id,
        kind=claim.kind,
        attempt=claim.attempt,
        fence=claim.fence,
        settled=_word(settlement),
        waited_s=round(claim.waited.total_seconds(), 3),
        ran_s=round((attempt.ended_at_s or now_s()) - attempt.started_at_s, 3),
        **({} if error is None else {"error": error}),
        **({} if attempt.where is None else {"where": attempt.where}),
    )
    if isinstance(settlement, Bury):
        log.error(
            "alert.died" if claim.kind == ALERT_KIND else "job.buried",
            job_id=claim.job_id,
            kind=claim.kind,
            reason=settlement.reason,
            error=settlement.error,
            alert_id=alert_id,
        )


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


def _word(settlement: Settlement) -> str:
    match settlement:
        case Succeed():
            return "succeeded"
        case Requeue(ended=ended):
            return ended
        case Bury():
            return "dead"
