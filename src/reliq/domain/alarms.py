"""
Which alarms are on, and what of them a person is told: rules over figures of the queue.

An alarm is told when it comes on, again after each window of time that it stays on, and "all well
again" follows once when none is on any more. One that comes back within the window is not told
anew, so that an alarm that flutters makes two messages a window at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from reliq.domain.duration import format_duration
from reliq.domain.slots import Schedule, Slot, due_slots

SLOTS_ASKED: Final = 100
"""Slots of one schedule that are looked for at most, the newest."""

ERRORS_TOLD: Final = 3
"""Errors that one message quotes at most."""

PATIENT: Final = frozenset({"due", "slot", "leases"})
"""Told when they are on at two looks in a row: a worker that starts after an outage finds them,
and mends them."""
PATIENCE: Final = timedelta(seconds=30)
"""Between the two: looks that were held up run one right after the other."""

LINES_MAX: Final = 20
"""Alarms that one message tells of one by one."""

Name = tuple[str, str]
"""What an alarm is about: its name, and a queue or a schedule, where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """From where on figures are an alarm; `window` is how far back they reach."""

    dead: int
    same_error: int
    lost_leases: int
    due_age: timedelta
    window: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """One error of one kind, and how many jobs died of it that nobody has looked at."""

    kind: str
    fingerprint: str | None
    jobs: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """
    What was seen at one look.

    `died` are dead letters of the window that nobody has made anew or ignored; `late` are queues
    with jobs that are due for longer than the bound: how many, and the age of the oldest; `stuck`
    are running jobs whose lease ended that long ago; `overdue` are schedules.
    """

    now: datetime
    died: int = 0
    died_at_least: bool = False
    errors: Sequence[Error] = ()
    alerts_lost: int = 0
    late: Mapping[str, tuple[int, timedelta]]
    lost_leases: int = 0
    lost_workers: int = 0
    stuck: int = 0
    breakers: Sequence[str] = ()
    overdue: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """
    One alarm, on or over; a row of `reliq.alarms`.

    `told_at` is None as long as it was not told; `end_owed`: it was, and its end was not.
    """

    name: Name
    text: str
    since: datetime
    told_at: datetime | None = None
    ended_at: datetime | None = None
    end_owed: bool = False


@dataclass(frozen=True, slots=True)
class Watched:
    """What there is to remember, and what to tell; None: nothing."""

    alarms: Sequence[Alarm]
    news: str | None

    @property
    def on(self) -> list[Alarm]:
        """Those that are on, told or not."""
        return [alarm for alarm in self.alarms if alarm.ended_at is None]


def signs_of_life(schedule: Schedule, *, now: datetime, late: timedelta) -> list[Slot]:
    """
    Return the newest slot that is older than `late`, and those after it.

    If none of them was made, the schedule is overdue. Nothing is returned where nothing can be
    said: there is no such slot, or slots that were missed are left out on purpose.
    """
    if schedule.missed == "none" or schedule.age_max <= late * 2:
        return []
    oldest = now - schedule.age_max + late
    slots = due_slots(replace(schedule, missed="latest"), now=now - late, since=oldest)
    if not slots:
        return []
    after = schedule.when.between(slots[-1].at, now)
    return [slots[-1], *(Slot(schedule_id=schedule.id, at=at) for at in after)][-SLOTS_ASKED:]


def alarms_on(figures: Figures, bounds: Bounds) -> dict[Name, str]:
    """Say which alarms are on, each in a sentence that says what to do."""
    return _failures(figures, bounds) | _silence(figures, bounds)


def _failures(figures: Figures, bounds: Bounds) -> dict[Name, str]:
    """Find what went wrong too often of late."""
    on: dict[Name, str] = {}
    within = f"within {format_duration(bounds.window)}"
    if figures.died >= bounds.dead:
        more = " or more" if figures.died_at_least else ""
        on["dead", ""] = (
            f"{figures.died}{more} jobs died {within} and wait for a person: see `reliq failed`"
        )
    if many := [each for each in figures.errors if each.jobs >= bounds.same_error]:
        # One alarm, whichever errors they are: in a storm others come to the top all the time.
        on["same-error", ""] = f"many jobs died {within} of one error: " + "; ".join(
            f"{each.jobs} of kind {each.kind}, see `reliq failed --kind {each.kind} "
            f"--error {each.fingerprint}`: {each.error}"
            for each in many[:ERRORS_TOLD]
        )
    if figures.alerts_lost:
        on["alerts", ""] = (
            f"{figures.alerts_lost} alerts never arrived: see `reliq failed`, kinds alert and alert.…"
        )
    if figures.lost_leases >= bounds.lost_leases:
        on["workers", ""] = (
            f"{figures.lost_workers} workers fell silent {within} and lost {figures.lost_leases} "
            "leases: look at the view reliq.lost_leases"
        )
    for queue in figures.breakers:
        on["breaker", queue] = (
            f"the breaker of the queue {queue} is open, its jobs fail: see `reliq limits`"
        )
    return on


def _silence(figures: Figures, bounds: Bounds) -> dict[Name, str]:
    """Find what should have happened, and did not."""
    on: dict[Name, str] = {}
    late = _whole(bounds.due_age)
    for queue, (jobs, age) in figures.late.items():
        on["due", queue] = (
            f"nobody takes jobs of the queue {queue}, {jobs} or more are late, the oldest by "
            f"{_whole(age)}: are there workers, and enough, that know the kind and take the queue?"
        )
    for schedule in figures.overdue:
        on["slot", schedule] = (
            f"the schedule {schedule} is overdue by {late} or more, none of its slots was made: see "
            "the log of the workers"
        )
    if figures.stuck:
        on["leases", ""] = (
            f"the leases of {figures.stuck} running jobs ended {late} ago or earlier, and nobody "
            "takes them over: see the log of the workers"
        )
    return on


def decide(on: Mapping[Name, str], before: Sequence[Alarm], *, now: datetime,
           window: timedelta) -> Watched:  # fmt: skip
    """Compare with what was before: what is to be told, and what to remember."""
    known = {alarm.name: alarm for alarm in before}
    alarms, told = [], []
    for name, text in on.items():
        alarm, is_told = _still(known.pop(name, None), name, text, now, window)
        alarms.append(alarm)
        if is_told:
            told.append(_line(alarm, now))
    over = [replace(old, ended_at=old.ended_at or now) for old in known.values()]
    owed = sorted((old for old in over if old.end_owed), key=lambda old: old.since)
    if told:
        news = "reliq: " + "\n".join(_shortened(told))
    elif owed and not alarms:
        lines = [
            f"over after {_whole((old.ended_at or now) - old.since)}: {old.text}" for old in owed
        ]
        news = "\n".join(["reliq: all well again.", *_shortened(lines)])
        over = [replace(old, end_owed=False) for old in over]
    else:
        news = None
    alarms += [old for old in over if old.end_owed or _is_fresh(old, now, window)]
    return Watched(alarms, news)


def _still(
    old: Alarm | None, name: Name, text: str, now: datetime, window: timedelta
) -> tuple[Alarm, bool]:
    """Carry an alarm that is on further, and say whether to tell it now."""
    is_known = old is not None and old.ended_at is None and now - old.since >= PATIENCE
    if old is None:
        old = Alarm(name=name, text=text, since=now)
    is_told = (is_known or name[0] not in PATIENT) and not _is_fresh(old, now, window)
    since = old.since if old.ended_at is None else now
    alarm = replace(old, text=text, since=since, ended_at=None)
    return (replace(alarm, told_at=now, end_owed=True) if is_told else alarm), is_told


def _shortened(lines: Sequence[str]) -> Sequence[str]:
    """Keep what a chat takes, and say how much more there is."""
    more = len(lines) - LINES_MAX
    return lines if more <= 0 else [*lines[:LINES_MAX], f"and {more} more: see `reliq doctor`"]


def _is_fresh(alarm: Alarm, now: datetime, window: timedelta) -> bool:
    """Tell whether it was told within the window; a clock that was set back makes it stale."""
    return alarm.told_at is not None and timedelta(0) <= now - alarm.told_at < window


def _line(alarm: Alarm, now: datetime) -> str:
    lasts = _whole(now - alarm.since)
    return alarm.text if alarm.since == now else f"{alarm.text} (for {lasts})"


def _whole(age: timedelta) -> str:
    return format_duration(timedelta(seconds=round(age.total_seconds())))
