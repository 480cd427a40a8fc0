"""
Rules that say when: every so many minutes, daily at a local time, or by a cron expression.

Each rule answers one question, `between(after, until)`: which instants of UTC does it name in
the half-open window (after, until]? The answer depends on nothing but the arguments and the
zone's published rules: not on the zone of the process, not on earlier calls.

A rule in local time names wall times, and a wall time is not an instant. It stands here for
the *first* instant at which a clock on that wall shows it or a later time:

| the wall time                       | runs                                          |
|-------------------------------------|-----------------------------------------------|
| exists once                         | at that instant                               |
| is skipped (spring, a lost day)     | once, at the first instant after the gap      |
| occurs twice (autumn)               | once, at its first occurrence                 |

Wall times that fall on one instant are one slot. A cron expression whose hour field allows all
24 hours is the exception, for it names no hour but a pace: it follows elapsed time, and so
runs in both of the autumn's equal hours and not at all in the spring's missing one. cronsim,
left to itself, decides this by the letters of the expression (a leading `*` in the hour or the
minute field), which would run `*/30 2 * * *` four times in autumn and never in spring; hence
it is only asked for wall times, and what they mean is decided here.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from math import ceil
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
MINUTES_MAX: Final = 366 * 24 * 60

_CLOCK_BACK_MAX: Final = timedelta(hours=3)
"""No zone has put its clocks back further at once since 1995 (Antarctica/Casey, tzdata 2026)."""

_TIME_OF_DAY: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_SOME_DAY: Final = datetime(2024, 1, 1)  # noqa: DTZ001 - wall times have no zone yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """
    Every `minutes` minutes, counted from 1970-01-01T00:00Z.

    60 is the start of each hour *in UTC*; what does not divide a day drifts through it.
    """

    minutes: int

    def __post_init__(self) -> None:
        if type(self.minutes) is not int or not 1 <= self.minutes <= MINUTES_MAX:
            raise ValueError(
                f"minutes={self.minutes!r}: give a whole number from 1 to {MINUTES_MAX} (a year)"
            )

    def between(self, after: datetime, until: datetime) -> list[datetime]:
        """Return the instants in (after, until], oldest first."""
        step = timedelta(minutes=self.minutes)
        first, last = (after - EPOCH) // step + 1, (until - EPOCH) // step
        return [EPOCH + step * n for n in range(first, last + 1)]

    def most(self, span: timedelta) -> int:
        """Bound how many instants a window of this length can hold."""
        return ceil(span / timedelta(minutes=self.minutes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Daily:
    """Once a day at a local time, written `HH:MM`, in a zone named as IANA names it."""

    at: str
    zone: str

    def __post_init__(self) -> None:
        if not _TIME_OF_DAY.fullmatch(str(self.at)):
            raise ValueError(f"at={self.at!r}: write hour and minute as in '09:00' or '23:30'")
        _zone(self.zone)

    def between(self, after: datetime, until: datetime) -> list[datetime]:
        """Return the instants in (after, until], oldest first."""
        zone = _zone(self.zone)
        day, last = _wall(after, zone).date(), _wall(until + _CLOCK_BACK_MAX, zone).date()
        found = set[datetime]()
        while day <= last:
            found.add(_first_instant(datetime.combine(day, time.fromisoformat(self.at)), zone))
            day += DAY
        return sorted(instant for instant in found if after < instant <= until)

    def most(self, span: timedelta) -> int:
        """Bound how many instants a window of this length can hold."""
        return ceil(span / DAY)


@dataclass(frozen=True, slots=True)
class Cron:
    """
    By a cron expression of five fields, in a zone named as IANA names it.

    Where both day fields are restricted and neither starts with `*`, either may match, as in
    Debian's cron; `L`, `LW` and `MON#2` are known, seconds are not.
    """

    expression: str
    zone: str

    def __post_init__(self) -> None:
        if len(str(self.expression).split()) != 5:  # noqa: PLR2004
            raise ValueError(
                f"cron expression {self.expression!r}: write five fields: "
                "minute, hour, day of month, month, day of week"
            )
        try:
            next(self._walls(_SOME_DAY))
        except (CronSimError, ValueError) as error:
            raise ValueError(
                f"cron expression {self.expression!r}: {error}; write it as in '*/5 9-17 * * 1-5'"
            ) from error
        except StopIteration:
            raise ValueError(
                f"cron expression {self.expression!r}: no day matches it in 50 years; "
                "check the day of month against the month"
            ) from None
        _zone(self.zone)

    def between(self, after: datetime, until: datetime) -> list[datetime]:
        """Return the instants in (after, until], oldest first."""
        zone, by_pace = _zone(self.zone), self._is_pace()
        found, last = set[datetime](), _wall(until, zone) + _CLOCK_BACK_MAX
        # A simulation starts with the wall time that follows the one it is given.
        for wall in self._walls(_wall(after, zone) - _CLOCK_BACK_MAX):
            if wall > last:
                break
            found |= _occurrences(wall, zone) if by_pace else {_first_instant(wall, zone)}
        return sorted(instant for instant in found if after < instant <= until)

    def most(self, span: timedelta) -> int:
        """Bound how many instants a window of this length can hold, as if every day matched."""
        fields = CronSim(self.expression, _SOME_DAY)
        minutes, hours = len(fields.minutes), len(fields.hours)
        return min(minutes * hours * ceil(span / DAY), minutes * ceil(span / HOUR))

    def _walls(self, after: datetime) -> Iterator[datetime]:
        return CronSim(self.expression, after)

    def _is_pace(self) -> bool:
        return len(CronSim(self.expression, _SOME_DAY).hours) == 24  # noqa: PLR2004


class When(Protocol):
    """A rule: `Every`, `Daily`, `Cron`, or a team's own."""

    def between(self, after: datetime, until: datetime) -> list[datetime]:
        """List the instants in (after, until], in UTC and in order."""
        ...

    def most(self, span: timedelta) -> int:
        """Return how many instants a span of this length holds at most."""
        ...


def _zone(name: str) -> ZoneInfo:
    try:
        if name != "localtime":  # the zone of this machine, under a name that hides it
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise _no_zone(name) from error
    raise _no_zone(name)


def _no_zone(name: str) -> ValueError:
    return ValueError(f"zone={name!r}: use a name of the IANA list, as 'Europe/Berlin' or 'UTC'")


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _occurrences(wall: datetime, zone: ZoneInfo) -> set[datetime]:
    """Return the instants at which a clock in the zone shows this: none, one or two."""
    readings = {wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return {instant for instant in readings if _wall(instant, zone) == wall}


def _first_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant at which a clock in the zone shows this or a later time."""
    if shown := _occurrences(wall, zone):
        return min(shown)
    # Inside a gap the two readings of PEP 495 lie on both sides of the change.
    late, early = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    seconds = range(int((late - early).total_seconds()) + 1)
    return early + timedelta(
        seconds=bisect_left(
            seconds, x=True, key=lambda s: _wall(early + timedelta(seconds=s), zone) >= wall
        )
    )
