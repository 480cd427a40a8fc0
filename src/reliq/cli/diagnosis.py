"""
From figures to findings: what `reliq doctor` makes of what it measured, pure.

A finding is well, or it needs a person. What nobody has to act on is well, however unusual.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from reliq.app import ALERT_KIND
from reliq.cli.screen import plural
from reliq.domain.duration import format_duration

CLOCKS_APART_MAX: Final = timedelta(seconds=5)
SNAPSHOT_AGE_MAX: Final = timedelta(minutes=10)
"""A snapshot keeps every row version since it was taken, and the queue slows down."""
DUE_AGE_MAX: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    well: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """How far the database's clock is ahead of ours; the truth lies within `bound` of it."""

    ahead: timedelta
    bound: timedelta

    @classmethod
    def of(cls, asked_s: float, told_s: float, answered_s: float) -> "Clocks":
        """Compare one answer of the database with our clock before and after (Unix times)."""
        bound = (answered_s - asked_s) / 2
        return cls(
            ahead=timedelta(seconds=told_s - asked_s - bound), bound=timedelta(seconds=bound)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """
    What could be found out.

    `away` and `mismatch` say why there is no more: the database, or its schema. `kinds` are
    those the App handles, or None where it did not load.
    """

    away: str | None = None
    mismatch: str | None = None
    clocks: Clocks | None = None
    figures: Mapping[str, Any] | None = None
    kinds: Collection[str] | None = None
    unknown_kinds: Mapping[str, int] = field(default_factory=dict)


Verdict = Literal["well", "needs a person", "misconfigured", "database away"]

EXIT_CODES: Final[Mapping[Verdict, int]] = {
    "well": 0, "needs a person": 1, "misconfigured": 2, "database away": 75,
}  # fmt: skip


def diagnose(measured: Measured) -> list[Finding]:
    """Judge what was measured, in the order a person should read it."""
    if measured.away is not None:
        return [Finding("database", well=False, text=measured.away)]
    found = []
    if measured.clocks is not None:
        found.append(_clocks(measured.clocks))
    if measured.mismatch is not None:
        return [*found, Finding("schema", well=False, text=measured.mismatch)]
    found.append(Finding("schema", well=True, text="current"))
    if measured.figures is not None:
        found += _server(measured.figures)
        found += _jobs(measured.figures)
        found += [_alarms(measured.figures), _alerts(measured), _kinds(measured)]
    return found


def verdict(problems: list[str], measured: Measured, findings: list[Finding]) -> Verdict:
    """Sum up; a wrong configuration comes first, since it may be the reason of the rest."""
    if problems:
        return "misconfigured"
    if measured.away is not None:
        return "database away"
    return "well" if all(finding.well for finding in findings) else "needs a person"


def _clocks(clocks: Clocks) -> Finding:
    apart = abs(clocks.ahead)
    side = "ahead of" if clocks.ahead >= timedelta(0) else "behind"
    return Finding(
        "clocks",
        well=apart - clocks.bound <= CLOCKS_APART_MAX,
        text=f"the database is {_ms(apart)} {side} this machine, give or take {_ms(clocks.bound)}",
    )


def _server(figures: Mapping[str, Any]) -> Iterator[Finding]:
    yield Finding("database", well=True, text=f"Postgres {figures['server_version']} answers")
    commits = figures["synchronous_commit"]
    yield Finding(
        "synchronous_commit",
        well=commits != "off",
        text=commits if commits != "off" else "off: a crash loses what was acknowledged; set it on",
    )
    seqscan = figures["seqscan"]
    yield Finding(
        "enable_seqscan",
        well=seqscan == "off",
        text="off" if seqscan == "off" else "on: alter the role to set it off, or RELIQ_PLANNER",
    )
    yield Finding(
        "jit",
        well=not figures["jit"],
        text="on: alter the role to set it off, or RELIQ_PLANNER" if figures["jit"] else "off",
    )
    age: timedelta | None = figures["oldest_snapshot"]
    old = age is not None and age > SNAPSHOT_AGE_MAX
    yield Finding(
        "oldest snapshot",
        well=not old,
        text=(format_duration(_whole(age)) if age is not None else "no other")
        + (": end that transaction, for the queue slows down under it" if old else ""),
    )


def _jobs(figures: Mapping[str, Any]) -> Iterator[Finding]:
    unread = figures["unreadable"]
    yield Finding(
        "deliveries",
        well=not unread,
        text=f"{unread} of the last day could not be read: see `reliq failed`, then replay"
        if unread
        else "all of the last day were read",
    )
    due, oldest = figures["due"], figures["oldest_due"]
    late = oldest is not None and oldest > DUE_AGE_MAX
    since = f", the oldest for {format_duration(_whole(oldest))}" if oldest is not None else ""
    yield Finding(
        "due",
        well=not late,
        text=f"{plural(due, 'job')} due{since}; {plural(figures['workers'], 'worker')} listening"
        + (": too few, none that knows the kind or takes the queue, or paused?" if late else ""),
    )
    paused, held = ", ".join(figures["paused"]), figures["due_paused"]
    waits = f"; {plural(held, 'due job')} of paused queues" if held else ""
    yield Finding(
        "paused", well=True, text=f"{paused}{waits}: see `reliq limits`" if paused else "nothing"
    )
    disabled = ", ".join(figures["disabled"])
    yield Finding(
        "endpoints",
        well=True,
        text=f"disabled: {disabled}; see `reliq endpoint list`" if disabled else "none is disabled",
    )
    dead, left = figures["dead_last_day"], figures["open_last_day"]
    yield Finding(
        "dead",
        well=not left,
        text=f"{plural(dead, 'job')} died in the last day"
        + (f", {left} not made anew: see `reliq failed --since 1d`" if left else ""),
    )


def _alarms(figures: Mapping[str, Any]) -> Finding:
    on = figures["alarms"]
    return Finding("alarms", well=not on, text="; ".join(on) or "none is on")


def _alerts(measured: Measured) -> Finding:
    lost = (measured.figures or {})["open_alerts"]
    if lost:
        text = f"{plural(lost, 'alert')} never arrived: see `reliq failed`, kinds alert and alert.…"
    elif measured.kinds is not None and ALERT_KIND not in measured.kinds:
        text = "this App handles no `alert` jobs: nobody is told when a job dies"
    else:
        text = "none lost"
    return Finding("alerts", well=not lost, text=text)


def _kinds(measured: Measured) -> Finding:
    unknown = measured.unknown_kinds
    listed = ", ".join(f"{kind} ({plural(jobs, 'job')})" for kind, jobs in unknown.items())
    if measured.kinds is None:
        text = "not looked at: the App did not load"
    elif unknown:
        text = f"due, but this App has no handler: {listed}"
    else:
        text = "every job that is due has a handler"
    return Finding("kinds", well=not unknown, text=text)


def _whole(age: timedelta) -> timedelta:
    return timedelta(seconds=round(age.total_seconds()))


def _ms(span: timedelta) -> str:
    return f"{span.total_seconds() * 1000:.1f} ms"
