"""
The App that scenarios run: handlers that do one plain thing each, so that harm shows.

Chosen with `RELIQ_APP=reliq.automations.drill:app`, never the default. Whoever can sign for its
source can make it call any address: not for production.

A delivery is `{"id": "evt-1", "jobs": [{"kind": "drill.call", "payload": {"url": "http://…"}}]}`.

| kind          | payload          | does                                                        |
|---------------|------------------|-------------------------------------------------------------|
| `drill.call`  | `url`            | posts to the address, with the job's key                    |
| `drill.sleep` | `url`, `seconds` | waits, then calls                                           |
| `drill.fail`  | `permanent`      | fails, for ever if `permanent` is true                      |
| `drill.write` |                  | one row in `drill.effects` (made by the harness) in the transaction of the settle |
| `drill.stubborn` | `url`         | calls, then writes, and cannot be stopped: its late result meets the fence alone |
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import anyio
import httpx

from reliq.app import App, Handler, Job, Source
from reliq.domain.event import Delivery
from reliq.domain.http import check
from reliq.domain.job import NewJob
from reliq.domain.signature import SITE
from reliq.errors import PermanentError, TemporaryError
from reliq.settings import Settings

DEADLINE: Final = timedelta(seconds=10)
"""For a whole call, from connecting to the last byte."""

_EFFECT: Final = "insert into drill.effects (job_id, key, attempt) values ($1, $2, $3)"


def app(_: Settings) -> App:
    """Compose the App; each process has one client."""
    http = httpx.AsyncClient(follow_redirects=False, trust_env=False)
    return App(
        sources={"drill": Source(signature=SITE, route=route, dedup_key=dedup_key)},
        handlers={
            "drill.call": Handler(partial(call, http)),
            "drill.sleep": Handler(partial(sleep, http)),
            "drill.fail": Handler(fail),
            "drill.write": Handler(write),
            "drill.stubborn": Handler(partial(stubborn, http)),
        },
        close=[http.aclose],
    )


def dedup_key(delivery: Delivery) -> str:
    """Take the delivery's own id."""
    return str(delivery.json()["id"])


def route(delivery: Delivery) -> Sequence[NewJob]:
    """Make the jobs that the delivery asks for."""
    return [
        NewJob(kind=job["kind"], payload=job.get("payload", {}))
        for job in delivery.json().get("jobs", ())
    ]


async def call(http: httpx.AsyncClient, job: Job) -> None:
    """
    Post to the payload's address.

    The body is the same at every attempt, as services that know the key may demand. Which
    attempt and which process calls goes into headers, for the upstream's log.
    """
    headers = {
        "Idempotency-Key": job.key,
        "Drill-Job": str(job.id),
        "Drill-Attempt": str(job.attempt),
        "Drill-Process": str(os.getpid()),
    }
    body: dict[str, Any] = {"job": job.id, "kind": job.kind}
    with anyio.fail_after(DEADLINE.total_seconds()):
        response = await http.post(
            job.payload["url"], json=body, headers=headers, timeout=DEADLINE.total_seconds()
        )
    check(response, "the drill's upstream")


async def sleep(http: httpx.AsyncClient, job: Job) -> None:
    """Wait for as many seconds as the payload says, then call."""
    await anyio.sleep(job.payload["seconds"])
    await call(http, job)


async def fail(job: Job) -> None:
    """Fail; a permanent failure buries the job at once."""
    if job.payload.get("permanent", False):
        raise PermanentError("told to fail for ever")
    raise TemporaryError("told to fail")


async def write(job: Job) -> None:
    """Write a row that is there if and only if the job has succeeded."""
    async with job.transaction() as transaction:
        await transaction.execute(_EFFECT, job.id, job.key, job.attempt)


async def stubborn(http: httpx.AsyncClient, job: Job) -> None:
    """
    Call, then write, out of reach of cancellation, as code does that swallows it.

    A worker that wakes from a freeze stops its handlers at once; this one goes on, so that its
    late result reaches the database and only the fence is left to refuse it.
    """
    with anyio.CancelScope(shield=True):
        await call(http, job)
        await write(job)
