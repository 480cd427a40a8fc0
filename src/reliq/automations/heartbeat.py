"""A job an hour that does nothing: as long as it succeeds, schedule, queue and worker are well."""

import structlog

from reliq.job import Job

log = structlog.get_logger()


async def beat(job: Job) -> None:
    """Leave a trace in the log; the key names the slot."""
    log.info("heartbeat.beat", job_id=job.id, key=job.key)
