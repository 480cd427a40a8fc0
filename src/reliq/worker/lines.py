"""The log lines about attempts: one for each that ended, and why one was lost."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import structlog

from reliq.app import ALERT_KIND
from reliq.domain.job import JobId
from reliq.domain.outcome import Bury, Requeue, Settlement, Succeed
from reliq.logs import info_each
from reliq.worker.hand import Attempt, now_s

log = structlog.get_logger()

NOBODY: Final[Mapping[JobId, JobId]] = MappingProxyType({})


def attempts_ended(
    items: Sequence[tuple[Attempt, Settlement]], alerts: Mapping[JobId, JobId] = NOBODY
) -> None:
    """Write the canonical line of each attempt, and one for a person about each job that died."""
    info_each("attempt.ended", [_facts(attempt, settlement) for attempt, settlement in items])
    for attempt, settlement in items:
        if isinstance(settlement, Bury):
            claim = attempt.claim
            log.error(
                "alert.died" if claim.kind == ALERT_KIND else "job.buried",
                job_id=claim.job_id,
                kind=claim.kind,
                reason=settlement.reason,
                error=settlement.error,
                alert_id=alerts.get(claim.job_id),
            )


def _facts(attempt: Attempt, settlement: Settlement) -> dict[str, object]:
    claim = attempt.claim
    facts: dict[str, object] = {
        "job_id": claim.job_id,
        "kind": claim.kind,
        "attempt": claim.attempt,
        "fence": claim.fence,
        "settled": _word(settlement),
        "waited_s": round(claim.waited.total_seconds(), 3),
        "ran_s": round((attempt.ended_at_s or now_s()) - attempt.started_at_s, 3),
    }
    if not isinstance(settlement, Succeed) and settlement.error is not None:
        facts["error"] = settlement.error
    if attempt.where is not None:
        facts["where"] = attempt.where
    return facts


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
