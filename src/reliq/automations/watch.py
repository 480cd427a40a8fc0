"""
Look at the queue once a minute, and tell the operator what a single job cannot tell.

The look, what is remembered of it, the alert and the success of the job are one transaction: an
alarm is told once, however often a look is repeated. What is an alarm is decided in
`domain/alarms.py`. After a look that found none on, an address outside is called, whose owner
raises the alarm when no call comes: nobody in here can tell that every worker is gone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from reliq import enqueue
from reliq.app import ALERT_KIND, Handler
from reliq.automations.outgoing import Outgoing
from reliq.domain.alarms import (
    Alarm,
    Bounds,
    Error,
    Figures,
    Watched,
    alarms_on,
    decide,
    signs_of_life,
)
from reliq.domain.policy import Policy
from reliq.domain.retry import RetryPolicy
from reliq.domain.slots import Schedule
from reliq.domain.when import Every
from reliq.errors import ReliqError
from reliq.job import Job
from reliq.settings import Settings

KIND: Final = "watch"

AGE_MAX: Final = timedelta(minutes=5)
"""Of a look: what waited for longer, behind a pause say, tells nothing that the next one does not."""

SCHEDULE: Final = Schedule(kind=KIND, when=Every(minutes=1), priority=0, age_max=AGE_MAX)
POLICY: Final = Policy(
    retry=RetryPolicy(base=timedelta(seconds=5), attempts_max=3), time_limit=timedelta(seconds=30)
)
"""The next look comes in a minute."""

_IS_OLD: Final = "select reliq.now() - created_at > $2 from reliq.jobs where id = $1"
_LOCK: Final = "lock table reliq.alarms in share row exclusive mode"
"""One look at a time; before its clock is read, which then is behind that of the look before."""
_NOW: Final = "select reliq.now()"
_LOOK: Final = "select reliq.watch($1, $2, $3, $4)"
_KEEP: Final = "select reliq.keep_alarms($1)"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What to look at: from where on it is an alarm, whose slots, and whom to call if all is well."""

    bounds: Bounds
    schedules: Sequence[Schedule]
    ping: Outgoing | None = None

    async def __call__(self, job: Job) -> None:
        """Look, remember, tell; then call outside."""
        async with job.transaction() as tx:
            if await tx.fetchval(_IS_OLD, job.id, AGE_MAX):
                return
            figures, before = await self._look(tx)
            on = alarms_on(figures, self.bounds)
            watched = decide(on, before, now=figures.now, window=self.bounds.window)
            if watched.alarms != before:
                await tx.execute(_KEEP, _written(watched))
            if watched.news is not None:
                told = {
                    "text": watched.news,
                    # For workers of a version that knows alerts about jobs only.
                    "job_id": job.id, "kind": KIND, "attempt": 1, "reason": "see below",
                    "error": watched.news,
                }  # fmt: skip
                await enqueue(tx, ALERT_KIND, told, key=f"*:{job.key}", priority=0)
        if watched.news is not None:
            names = [":".join(alarm.name) for alarm in watched.on]
            log.warning("alarms.told", job_id=job.id, on=names)
        if self.ping is not None and not watched.on:
            await self._call(job, self.ping)

    async def _look(self, tx: Any) -> tuple[Figures, Sequence[Alarm]]:
        """Read the state of the queue, and what was told of it before."""
        await tx.execute(_LOCK)
        now, bounds = await tx.fetchval(_NOW), self.bounds
        signs = [
            (schedule, slots)
            for schedule in self.schedules
            if (slots := signs_of_life(schedule, now=now, late=bounds.due_age))
        ]
        asked = [(schedule.kind, slot.key) for schedule, slots in signs for slot in slots]
        kinds, keys = [kind for kind, _ in asked], [key for _, key in asked]
        seen = json.loads(await tx.fetchval(_LOOK, bounds.window, bounds.due_age, kinds, keys))
        made = set(seen["slots"])
        overdue = [
            schedule.id for schedule, slots in signs if made.isdisjoint(slot.key for slot in slots)
        ]
        return _figures(seen, overdue), [_alarm(row) for row in seen["alarms"]]

    async def _call(self, job: Job, ping: Outgoing) -> None:
        """Say outside that all is well; that it could not be said is no failure of the look."""
        try:
            await ping.get()
        except ReliqError as error:
            log.warning("watch.not_pinged", job_id=job.id, error=str(error))


def handler(settings: Settings, schedules: Sequence[Schedule], ping: Outgoing | None) -> Handler:
    """Watch by the bounds of the settings."""
    bounds = Bounds(
        dead=settings.watch_dead, same_error=settings.watch_same_error,
        lost_leases=settings.watch_lost_leases, due_age=settings.watch_due_age,
        window=settings.alert_window,
    )  # fmt: skip
    return Handler(Watch(bounds=bounds, schedules=schedules, ping=ping), policy=POLICY)


def _figures(seen: Mapping[str, Any], overdue: Sequence[str]) -> Figures:
    return Figures(
        now=datetime.fromisoformat(seen["now"]),
        died=seen["died"],
        died_at_least=seen["died_at_least"],
        errors=[Error(**row) for row in seen["errors"]],
        alerts_lost=seen["alerts_lost"],
        late={row["queue"]: (row["jobs"], timedelta(seconds=row["age_s"])) for row in seen["late"]},
        lost_leases=seen["lost"]["leases"],
        lost_workers=seen["lost"]["workers"],
        stuck=seen["stuck"],
        breakers=seen["breakers"],
        overdue=overdue,
    )


def _alarm(row: Mapping[str, Any]) -> Alarm:
    since, told_at, ended_at = (
        None if row[name] is None else datetime.fromisoformat(row[name])
        for name in ("since", "told_at", "ended_at")
    )
    assert since is not None  # noqa: S101 - of the table
    return Alarm(
        name=(row["name"], row["subject"]), text=row["text"], since=since, told_at=told_at,
        ended_at=ended_at, end_owed=row["end_owed"],
    )  # fmt: skip


def _written(watched: Watched) -> str:
    return json.dumps(
        [
            {
                "name": alarm.name[0], "subject": alarm.name[1], "text": alarm.text,
                "since": alarm.since, "told_at": alarm.told_at, "ended_at": alarm.ended_at,
                "end_owed": alarm.end_owed,
            }
            for alarm in watched.alarms
        ],
        default=datetime.isoformat,
    )  # fmt: skip
