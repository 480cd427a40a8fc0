"""
GitHub's webhooks: signed over the body, told apart by the delivery id in a header.

A delivery that is sent again by hand keeps its id. The id is not signed, so that somebody who
holds a signed body could pass it off as a new delivery; what must not happen twice has to rest
on what the body says.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from reliq.app import Source
from reliq.domain.event import Delivery
from reliq.domain.job import NewJob
from reliq.domain.signature import GITHUB
from reliq.job import Job

EVENT: Final = "x-github-event"
DELIVERY: Final = "x-github-delivery"

log = structlog.get_logger()


def dedup_key(delivery: Delivery) -> str | None:
    """Take the delivery's id."""
    return delivery.header(DELIVERY)


def route(delivery: Delivery) -> Sequence[NewJob]:
    """Make one job with what names the event; the handler finds the rest at GitHub."""
    body = delivery.json()
    if not isinstance(body, dict):
        raise ValueError("an event is a JSON object")  # noqa: TRY004 - as for all that is unreadable
    repository = body.get("repository")
    payload = {
        "event": delivery.header(EVENT),
        "action": body.get("action"),
        "repository": repository.get("full_name") if isinstance(repository, dict) else None,
        "delivery": delivery.header(DELIVERY),
    }
    return [NewJob(kind="github.event", payload=payload)]


async def log_event(job: Job) -> None:
    """Write down that something happened in a repository."""
    named = {name: job.payload[name] for name in ("action", "repository", "delivery")}
    log.info("github.received", job_id=job.id, github_event=job.payload["event"], **named)


SOURCE: Final = Source(
    signature=GITHUB,
    route=route,
    dedup_key=dedup_key,
    headers_kept=frozenset({EVENT, DELIVERY}),
)
