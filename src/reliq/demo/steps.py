"""What the demo sends, and what it expects to have come of it."""

import hashlib
import hmac
import json
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import anyio
import asyncpg
import httpx
from rich.console import Console

from reliq.demo.standin import StandIn
from reliq.domain.job import EventId, JobId
from reliq.postgres.desk import Desk, Row
from reliq.postgres.enqueue import enqueue

DELAY: Final = timedelta(seconds=3)

# The example of GitHub's documentation on validating deliveries.
GITHUB_SECRET: Final = "It's a Secret to Everybody"  # noqa: S105
GITHUB_BODY: Final = b"Hello, World!"
GITHUB_HEADERS: Final = {
    "x-github-event": "push",
    "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    "x-hub-signature-256": "sha256="
    "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the final table."""

    expected: str
    seen: str
    agrees: bool


@dataclass(slots=True, kw_only=True)
class Demo:
    """The sender's side: what it needs, and the answers it got, by name."""

    client: httpx.AsyncClient
    desk: Desk
    upstream: StandIn
    secrets: dict[str, str]
    console: Console
    answers: dict[str, list[httpx.Response]] = field(default_factory=dict)
    delayed: JobId = field(init=False)

    async def post(
        self, name: str, source: str, body: bytes, headers: dict[str, str], note: str
    ) -> None:
        """Deliver one request and say how it was answered."""
        began = time.monotonic()
        answer = await self.client.post(f"/hooks/{source}", content=body, headers=headers)
        took_ms = (time.monotonic() - began) * 1000
        self.answers.setdefault(name, []).append(answer)
        self.console.print(
            f"  {note:<42} → {answer.status_code} {answer.text.strip()} [dim]{took_ms:.0f} ms[/dim]"
        )

    def form(self, **fields: str) -> tuple[bytes, dict[str, str]]:
        """Sign a site form as the site's server would."""
        body = json.dumps(fields).encode()
        mac = hmac.new(self.secrets["site"].encode(), body, hashlib.sha256).hexdigest()
        return body, {"content-type": "application/json", "x-signature": mac}

    def answer(self, name: str) -> tuple[int, Any]:
        """Return the first answer under a name: status and decoded body."""
        first = self.answers[name][0]
        return first.status_code, first.json()

    async def jobs_of(self, name: str) -> list[Row]:
        """List the jobs of the event that an accepted delivery made."""
        event = self.answer(name)[1]["id"]
        return [job for job in await self.desk.list_jobs(limit=100) if job["event_id"] == event]


async def send_all(demo: Demo, pool: asyncpg.Pool) -> None:
    """Send everything once."""
    update = {
        "update_id": 1001,
        "message": {"message_id": 1, "date": 0, "chat": {"id": 42}, "text": "/ping"},
    }
    secret = {"x-telegram-bot-api-secret-token": demo.secrets["telegram"]}
    await demo.post(
        "ping", "telegram", json.dumps(update).encode(), secret, "Telegram: /ping, secret header"
    )
    body, headers = demo.form(id="form-1", name="Ada", phone="+44 20 7946 0000")
    await demo.post("form", "site", body, headers, "site form, signed")
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(demo.post, "again", "site", body, headers, "the same form again")
    forged = body.replace(b"Ada", b"Eve")
    await demo.post("forged", "site", forged, headers, "the form with a name changed")
    await demo.post("unknown", "nobody", b"{}", {}, "a source nobody configured")
    await demo.post("github", "github", GITHUB_BODY, GITHUB_HEADERS, "GitHub's signed example")
    body, headers = demo.form(id="form-2", name="Bob", phone="none")
    await demo.post("refused", "site", body, headers, "a form the CRM answers with 400")
    async with pool.acquire() as connection:
        demo.delayed = (await enqueue(connection, "heartbeat", run_in=DELAY)).job_id
    demo.console.print(f"  {'a heartbeat, in 3 s':<42} → job {demo.delayed}")


async def judge(demo: Demo) -> list[Check]:
    """Compare what came of it with what should have."""
    return [
        *await _judge_ping(demo),
        *await _judge_forms(demo),
        *await _judge_refusals(demo),
        *await _judge_github(demo),
        await _judge_delay(demo),
    ]


async def _judge_ping(demo: Demo) -> list[Check]:
    status, told = demo.answer("ping")
    [job] = await demo.jobs_of("ping")
    calls = [call.status for call in demo.upstream.seen("message")]
    return [
        Check("Telegram update: 202, one job", f"{status}, {told}",
              (status, told.get("jobs")) == (202, 1)),
        Check("pong: 502 first, then sent at the second attempt",
              f"calls {calls}, attempt {job['attempt']}, {job['state']}",
              calls == [502, 200] and (job["attempt"], job["state"]) == (2, "succeeded")),
    ]  # fmt: skip


async def _judge_forms(demo: Demo) -> list[Check]:
    status, told = demo.answer("form")
    again = [(answer.status_code, answer.json()) for answer in demo.answers["again"]]
    jobs = await demo.jobs_of("form")
    crm = [call for call in demo.upstream.seen("crm") if call.status == 200]  # noqa: PLR2004
    [refused] = await demo.jobs_of("refused")
    alerts = demo.upstream.seen("alert")
    return [
        Check("signed form: 202, one job", f"{status}, {told}",
              (status, told.get("jobs")) == (202, 1)),
        Check("again, five at once: 202, the first event's id, duplicate",
              f"{len(again)} times {again[0]}",
              all(a == (202, {"id": told["id"], "jobs": 0, "duplicate": True}) for a in again)),
        Check("… and still one job, one call to the CRM",
              f"{len(jobs)} job, {jobs[0]['state']}, {len(crm)} call",
              len(jobs) == 1 and jobs[0]["state"] == "succeeded" and len(crm) == 1),
        Check("CRM answers 400: dead at the first attempt",
              f"attempt {refused['attempt']}, {refused['state']}",
              (refused["attempt"], refused["state"]) == (1, "dead")),
        Check("… and one alert sent to the chat",
              f"{len(alerts)} alert naming job {refused['id']}",
              len(alerts) == 1 and str(refused["id"]) in str(alerts[0].body)),
    ]  # fmt: skip


async def _judge_refusals(demo: Demo) -> list[Check]:
    forged, unknown = demo.answer("forged"), demo.answer("unknown")
    return [
        Check("one byte changed: 401", str(forged), forged[0] == 401),  # noqa: PLR2004
        Check("unknown source: 404", str(unknown), unknown[0] == 404),  # noqa: PLR2004
    ]


async def _judge_github(demo: Demo) -> list[Check]:
    status, told = demo.answer("github")
    event = await demo.desk.show_event(EventId(told["id"]))
    delivery = await demo.desk.delivery(EventId(told["id"]), age_max=None)
    return [
        Check("GitHub's example, signed, not JSON: 202, no jobs", f"{status}, {told}",
              (status, told.get("jobs")) == (202, 0)),
        Check("… stored as it came, with the reason, to be replayed",
              f"{delivery.body!r}, {event['parse_error']}",
              delivery.body == GITHUB_BODY and bool(event["parse_error"])),
    ]  # fmt: skip


async def _judge_delay(demo: Demo) -> Check:
    job = await demo.desk.show_job(demo.delayed)
    waited = job["claimed_at"] - job["created_at"] if job["claimed_at"] else None
    return Check(
        f"heartbeat in {DELAY.total_seconds():g} s: not earlier, and done",
        f"claimed after {waited.total_seconds():.2f} s, {job['state']}" if waited else job["state"],
        waited is not None and waited >= DELAY and job["state"] == "succeeded",
    )
