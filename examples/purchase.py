"""
A purchase: the order and three jobs in one transaction, each job tried in its own way.

| job                | queue     | tried                                           |
|--------------------|-----------|-------------------------------------------------|
| `purchase.mail`    | `urgent`  | 6 times within three minutes: somebody waits    |
| `purchase.partner` | `default` | 5 times within three hours: a service of others |
| `report.request`   | `reports` | last of all, five minutes later, once an hour   |

A partner that is down, or a report that takes its time, touches neither the order nor the mail.
With the database's address in RELIQ_DATABASE_URL, and both services' in MAIL_URL and PARTNER_URL:

    reliq migrate
    RELIQ_APP=examples.purchase:app reliq worker &
    python examples/purchase.py
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

ORDERS = """
create table if not exists orders (
  id      bigint generated always as identity primary key,
  cents   int not null,
  made_at timestamptz not null default now()
)
"""
ORDER = """
insert into orders (cents) values ($1) returning id, to_char(made_at, 'YYYY-MM-DD HH24') as hour
"""
DAYS = "select distinct made_at::date::text as day from orders order by day"
SALES = """
select made_at::date as day, count(*) as orders, sum(cents) as cents from orders
where made_at >= $1::text::date and made_at < $1::text::date + 1 group by day
"""
REPORT_IN = timedelta(minutes=5)


async def buy(connection: Any, cents: int, *, report_in: timedelta = REPORT_IN) -> int:
    """Store an order and what follows from it: all of it, or nothing."""
    async with connection.transaction():
        order = await connection.fetchrow(ORDER, cents)
        payload, key = {"order": order["id"]}, f"order:{order['id']}"
        await enqueue_many(
            connection,
            [
                NewJob(kind="purchase.mail", payload=payload, key=key, queue="urgent", priority=1),
                NewJob(kind="purchase.partner", payload=payload, key=key),
                report.request("sales", key=f"sales:{order['hour']}", run_in=report_in),
            ],
        )
    number: int = order["id"]
    return number


async def each_day(tx: Any, _: report.Params) -> list[dict[str, str]]:
    """Make a chunk of the report of each day."""
    return [{"day": row["day"]} for row in await tx.fetch(DAYS)]


async def sales(tx: Any, chunk: report.Params) -> AsyncIterator[Any]:
    """Yield the rows of one day."""
    async for row in tx.cursor(SALES, chunk["day"]):
        yield row


def posting(service: Outgoing) -> Any:
    """Make a handler that posts a job's payload to a service, under the job's key."""

    async def post(job: Job) -> None:
        await service.post(job.payload, key=job.key)

    return post


def app(_: Settings) -> App:
    """Compose the App."""
    http = cache(lambda: httpx.AsyncClient(follow_redirects=False, trust_env=False))
    mail, partner = (
        Outgoing(http=http, url=SecretStr(os.environ[name]), what=what)
        for name, what in (("MAIL_URL", "the mail service"), ("PARTNER_URL", "the partner"))
    )
    sold = report.Report(columns=("day", "orders", "cents"), split=each_day, rows=sales)
    return App(
        handlers={
            "purchase.mail": Handler(posting(mail), policy=replace(MAIL, queue="urgent")),
            "purchase.partner": Handler(posting(partner), policy=WEBHOOK),
            **report.handlers({"sales": sold}),
        },
    )


async def main(database_url: str) -> None:
    """Buy something."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(ORDERS)
    print(f"order {await buy(connection, 1999)} is stored, and three jobs with it")
    await connection.close()


if __name__ == "__main__":
    if not (found := os.environ.get("RELIQ_DATABASE_URL")):
        print("RELIQ_DATABASE_URL is missing: set it to the address of a Postgres", file=sys.stderr)
        sys.exit(2)
    asyncio.run(main(found))
