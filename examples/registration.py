"""
A registration: the new member and three jobs in one transaction; the CRM may be down.

| job                    | queue     | tried                                         |
|------------------------|-----------|-----------------------------------------------|
| `registration.welcome` | `urgent`  | 6 times within three minutes: somebody waits  |
| `registration.crm`     | `crm`     | 5 times within three hours                    |
| `report.request`       | `reports` | once a night, however many have registered    |

Each waits for a retry by itself: while the CRM answers 502, members get their mail and the night its
report. `reliq limit crm --opens-after 5` gives the CRM a breaker, too. With the database's address in
RELIQ_DATABASE_URL, and both services' in MAIL_URL and CRM_URL:

    reliq migrate
    RELIQ_APP=examples.registration:app reliq worker &
    python examples/registration.py
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import asyncpg
import httpx
from pydantic import SecretStr

from reliq import MAIL, WEBHOOK, App, Handler, Job, NewJob, enqueue_many
from reliq.automations import report
from reliq.automations.outgoing import Outgoing
from reliq.settings import Settings

MEMBERS = """
create table if not exists members (
  id         bigint generated always as identity primary key,
  name       text not null,
  created_at timestamptz not null default now()
)
"""
MEMBER = """
insert into members (name) values ($1)
returning id, created_at::date::text as day,
          date_trunc('day', created_at) + interval '1 day 2 hours' - created_at as until_night
"""
OF_A_DAY = """
select id, created_at from members
where created_at >= $1::text::date and created_at < $1::text::date + 1 order by id
"""


async def register(connection: Any, name: str, *, report_in: timedelta | None = None) -> int:
    """Store a member and what follows from it: all of it, or nothing."""
    async with connection.transaction():
        member = await connection.fetchrow(MEMBER, name)
        payload, key, day = {"member": member["id"]}, f"member:{member['id']}", member["day"]
        at_night = member["until_night"] if report_in is None else report_in
        await enqueue_many(
            connection,
            [
                NewJob(
                    kind="registration.welcome",
                    payload=payload,
                    key=key,
                    queue="urgent",
                    priority=1,
                ),
                NewJob(kind="registration.crm", payload=payload, key=key, queue="crm"),
                report.request("members", {"day": day}, key=f"members:{day}", run_in=at_night),
            ],
        )
    number: int = member["id"]
    return number


async def one_day(_: Any, params: report.Params) -> list[dict[str, str]]:
    """Make one chunk: a day has few members."""
    return [{"day": params["day"]}]


async def members(tx: Any, chunk: report.Params) -> AsyncIterator[Any]:
    """Yield those who registered on a day."""
    async for row in tx.cursor(OF_A_DAY, chunk["day"]):
        yield row


def posting(service: Outgoing) -> Any:
    """Make a handler that posts a job's payload to a service, under the job's key."""

    async def post(job: Job) -> None:
        await service.post(job.payload, key=job.key)

    return post


def app(_: Settings) -> App:
    """Compose the App."""
    http = cache(lambda: httpx.AsyncClient(follow_redirects=False, trust_env=False))
    mail, crm = (
        Outgoing(http=http, url=SecretStr(os.environ[name]), what=what)
        for name, what in (("MAIL_URL", "the mail service"), ("CRM_URL", "the CRM"))
    )
    new = report.Report(columns=("id", "created_at"), split=one_day, rows=members)
    return App(
        handlers={
            "registration.welcome": Handler(posting(mail), policy=replace(MAIL, queue="urgent")),
            "registration.crm": Handler(posting(crm), policy=replace(WEBHOOK, queue="crm")),
            **report.handlers({"members": new}),
        },
    )


async def main(database_url: str) -> None:
    """Register somebody."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(MEMBERS)
    print(f"member {await register(connection, 'Ann')} is stored, and three jobs with it")
    await connection.close()


if __name__ == "__main__":
    if not (found := os.environ.get("RELIQ_DATABASE_URL")):
        print("RELIQ_DATABASE_URL is missing: set it to the address of a Postgres", file=sys.stderr)
        sys.exit(2)
    asyncio.run(main(found))
