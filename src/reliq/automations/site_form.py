"""
A form of a web site, sent on by the site's server as JSON and signed with a shared secret.

The signature is made on the server: a secret in a page would be everybody's. The form's `id`,
if it has one, makes repeated submissions one event.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from reliq.app import Handler, Source
from reliq.automations.outgoing import Outgoing
from reliq.domain.event import Delivery
from reliq.domain.job import NewJob
from reliq.domain.signature import SITE
from reliq.job import Job

FIELDS_MAX: Final = 30
VALUE_MAX: Final = 1_000
"""Fields of a job and characters of each; the event keeps the whole form."""

log = structlog.get_logger()


def dedup_key(delivery: Delivery) -> str | None:
    """Take the form's own id, a text or a number."""
    match _form(delivery).get("id"):
        case None:
            return None
        case str() | int() as found if not isinstance(found, bool):
            return str(found)
        case _:
            raise ValueError("the id of a form is a text or a whole number")


def route(delivery: Delivery) -> Sequence[NewJob]:
    """Make one job with the form's fields, as far as they are plain and short."""
    plain = {
        name[:VALUE_MAX]: value[:VALUE_MAX] if isinstance(value, str) else value
        for name, value in _form(delivery).items()
        if isinstance(value, str | int | float | None)
    }
    return [NewJob(kind="site.form", payload={"fields": dict(list(plain.items())[:FIELDS_MAX])})]


def handler(crm: Outgoing | None) -> Handler:
    """Log that a form came and, where there is a CRM, post the form to it."""

    async def receive(job: Job) -> None:
        fields: Mapping[str, Any] = job.payload["fields"]
        # Names only: the values are somebody's name, address and worries.
        log.info("form.received", job_id=job.id, event_id=job.event_id, fields=sorted(fields))
        if crm is not None:
            await crm.post(fields, key=job.key)

    return Handler(receive)


def _form(delivery: Delivery) -> dict[str, Any]:
    form = delivery.json()
    if not isinstance(form, dict):
        raise ValueError("a form is a JSON object")  # noqa: TRY004 - as for all that is unreadable
    return form


SOURCE: Final = Source(signature=SITE, route=route, dedup_key=dedup_key)
