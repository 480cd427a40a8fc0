"""
The App of scenarios with outgoing webhooks: the drill's, and deliveries to endpoints of its own.

Chosen with `RELIQ_APP=reliq.automations.partner:app`. A job of kind `drill.partner` makes an endpoint
and the deliveries to it in one transaction: its payload names the `endpoint`, its `url`, how many
`events`, and whether they are `ordered`. With a `host` the endpoint is at that name, which leads to
loopback and to somebody else's network by turns, as that of an attacker does who wants us to call there.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Final

import httpx

from reliq.app import App, Handler
from reliq.automations import drill, webhook
from reliq.automations.webhook import Webhook, delivery
from reliq.domain.outcome import Outcome
from reliq.domain.signing import SECRET_BYTES, secret_of
from reliq.job import Job
from reliq.settings import Settings

HERE: Final = "127.0.0.1"
ELSEWHERE: Final = "127.0.0.2"
"""Where the upstream is, and an address that no delivery may go to; both are loopback."""

_ADD: Final = (
    "insert into reliq.endpoints (name, url, sealed) values ($1, $2, $3) on conflict do nothing"
)
_ENQUEUE: Final = "select reliq.enqueue($1, $2, queue => $3, group_key => $4)"


@dataclass(slots=True)
class Rebinding:
    """A resolver that answers otherwise each time it is asked for a name."""

    turns: "cycle[str]"

    async def __call__(self, host: str, _: int) -> Sequence[str]:
        """Answer with an address as it is."""
        return [host if host == HERE else next(self.turns)]


def app(settings: Settings) -> App:
    """Compose the App."""
    found = drill.app(settings)
    deliver = Webhook(
        private=True, deadline=settings.time_limit / 2, resolve=Rebinding(cycle([HERE, ELSEWHERE])),
        is_allowed=lambda address: address == HERE, client=_client,
    ).deliver  # fmt: skip

    async def sent(_: drill.Drill, job: Job) -> Outcome:
        return await deliver(job)

    shown = drill.Drill(http=httpx.AsyncClient(verify=False), deadline_s=0, points=frozenset())  # noqa: S501 - is never used
    kinds = {
        "drill.partner": Handler(partial(drill.told, shown, invite)),
        webhook.KIND: Handler(partial(drill.told, shown, sent), payload=webhook.Event),
    }
    return replace(found, handlers={**found.handlers, **kinds})


def _client(job: Job) -> httpx.AsyncClient:
    """Say in headers who calls, for the upstream's log."""
    told = {
        "Drill-Job": str(job.id),
        "Drill-Attempt": str(job.attempt),
        "Drill-Process": str(os.getpid()),
    }
    return httpx.AsyncClient(verify=False, trust_env=False, headers=told)  # noqa: S501 - as the drill's


async def invite(_: drill.Drill, job: Job) -> None:
    """Make an endpoint, and events for it, which are there if and only if this job has succeeded."""
    wish = job.payload
    url = httpx.URL(wish["url"])
    url = url.copy_with(host=wish.get("host", url.host))
    secrets = {"secrets": [secret_of(bytes(SECRET_BYTES))]}
    async with job.transaction() as transaction:
        await transaction.execute(_ADD, wish["endpoint"], str(url), json.dumps(secrets))
        for number in range(wish["events"]):
            told = {"number": number}
            made = delivery(
                wish["endpoint"], "drill.happened", told, ordered=wish.get("ordered", False)
            )
            await transaction.execute(
                _ENQUEUE, made.kind, json.dumps(made.payload), made.queue, made.group_key
            )
