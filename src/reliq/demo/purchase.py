"""A purchase in the demo: one transaction, four jobs for four services, one of which is down."""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
from cryptography.fernet import Fernet

from reliq.automations.report import request
from reliq.automations.webhook import delivery
from reliq.demo.inbox import Inbox
from reliq.demo.steps import Check, Demo
from reliq.domain.job import JobId, NewJob
from reliq.domain.report import report_link
from reliq.postgres.endpoints import PostgresEndpoints, sealing_of
from reliq.postgres.enqueue import enqueue_many

ORDER: Final = 1001
TEMPLATES: Final = Path(__file__).with_name("mails")
REPORT_IN: Final = timedelta(seconds=1)
LINK_FOR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What a shop has beside its database: keys, a mail server, an inbox to look into."""

    inbox: Inbox
    encryption_key: str
    report_secret: str

    @classmethod
    def opened(cls, inbox: Inbox) -> "Shop":
        """Make up its secrets."""
        key = f"demo:{Fernet.generate_key().decode()}"
        return cls(inbox=inbox, encryption_key=key, report_secret=secrets.token_hex(32))

    @property
    def settings(self) -> dict[str, str]:
        """What receiver and worker need to know."""
        return {
            "RELIQ_MAIL_URL": self.inbox.url,
            "RELIQ_MAIL_FROM": "Shop <shop@shop.example>",
            "RELIQ_MAIL_TEMPLATES": str(TEMPLATES),
            "RELIQ_ENCRYPTION_KEYS": self.encryption_key,
            "RELIQ_WEBHOOK_PRIVATE": "true",  # the partner is on this machine
            "RELIQ_REPORT_SECRET": self.report_secret,
        }


@dataclass(frozen=True, slots=True)
class Bought:
    """The jobs of the purchase."""

    mail: JobId
    webhook: JobId
    crm: JobId
    report: JobId


async def buy(demo: Demo, shop: Shop, pool: asyncpg.Pool) -> Bought:
    """Store what follows from an order, all of it or nothing, and say so."""
    endpoints = PostgresEndpoints(pool, sealing_of(shop.encryption_key))
    address = f"{demo.upstream.address}/partner"
    await endpoints.add("partner", address, demo.upstream.partner_secret)
    mail: dict[str, Any] = {
        "to": "ada@example.org", "template": "receipt", "user": 7, "event": ORDER,
        "data": {"total": "12.50 €"},
    }  # fmt: skip
    jobs = {
        "a mail to the customer": NewJob(
            kind="mail.send", payload=mail, queue="urgent", priority=1
        ),
        "a webhook to the partner, signed": delivery(
            "partner", "order.paid", {"order": ORDER}, key=f"order:{ORDER}:paid"
        ),
        "the order to the CRM, which is down": NewJob(
            kind="site.form", payload={"fields": {"order": ORDER}}, key=f"order:{ORDER}"
        ),
        "a report on all jobs, in 1 s": request("jobs", run_in=REPORT_IN),
    }
    async with pool.acquire() as connection, connection.transaction():
        made = await enqueue_many(connection, list(jobs.values()))
    for what, job in zip(jobs, made, strict=True):
        demo.console.print(f"  {what:<42} → job {job.job_id}")
    return Bought(*(job.job_id for job in made))


async def judge_purchase(demo: Demo, shop: Shop, bought: Bought) -> list[Check]:
    """Look at the far ends of all four."""
    crm = await demo.desk.show_job(bought.crm)
    mail = await demo.desk.show_job(bought.mail)
    mails = shop.inbox.mails
    partner = [call.status for call in demo.upstream.seen("partner")]
    tries = [call.status for call in demo.upstream.seen("order")]
    webhook = await demo.desk.show_job(bought.webhook)
    return [
        Check("one mail in the customer's inbox",
              f"{len(mails)} mail, {mails[0]['Subject']!r}" if mails else "none",
              len(mails) == 1 and mails[0]["Message-ID"] in str(mail["result"])),
        Check("the partner's own library accepts the webhook",
              f"answers {partner}, {webhook['state']}",
              (partner, webhook["state"]) == ([200], "succeeded")),
        Check("CRM down: tried again until it is back; the mail did not wait",
              f"answers {tries}, {crm['state']}; mail done {_before(mail, crm)}",
              tries == [503, 503, 200] and mail["finished_at"] < crm["finished_at"]),
        await _judge_report(demo, shop, bought.report, mail["created_at"] + LINK_FOR),
    ]  # fmt: skip


async def _judge_report(demo: Demo, shop: Shop, number: JobId, until: datetime) -> Check:
    """Ask for the report's progress and for the report, as a page and a person would."""
    secret = shop.report_secret.encode()
    link = report_link("", secret, number, until)
    path, asked = link.split("?")
    told = (await demo.client.get(f"{path}/progress?{asked}")).json()
    lines = (await demo.client.get(link)).text.splitlines()
    return Check(
        "the report is ready, and comes by a signed link",
        f"{told['state']}, {told['done']} of {told['total']} chunks, {len(lines) - 1} rows",
        told["state"] == "ready" and len(lines) - 1 == told["rows"] > 0,
    )


def _before(mail: dict[str, Any], crm: dict[str, Any]) -> str:
    if mail["finished_at"] is None or crm["finished_at"] is None:
        return "never"
    return f"{(crm['finished_at'] - mail['finished_at']).total_seconds():.1f} s before"
