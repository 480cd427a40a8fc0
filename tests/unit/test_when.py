from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from time import tzset
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq.domain.when import Cron, Daily, Every, When

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour of daylight saving
    "Asia/Kolkata",
    "Africa/Cairo",  # changes at midnight
    "America/Sao_Paulo",  # changed at midnight, until 2019
    "Africa/Casablanca",  # the wrong way round, for Ramadan
    "Antarctica/Casey",  # three hours at once
    "Pacific/Apia",  # had no 2011-12-30
]
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

zones = st.sampled_from(ZONES)
times = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))
moments = st.timedeltas(timedelta(0), timedelta(days=35 * 365)).map(
    lambda passed: datetime(2005, 1, 1, tzinfo=UTC) + passed
) | st.sampled_from(
    # The changes that hurt: random moments would hardly ever meet them.
    [
        datetime(2011, 12, 30, 10, tzinfo=UTC),
        datetime(2018, 11, 4, 3, tzinfo=UTC),
        datetime(2019, 2, 17, 2, tzinfo=UTC),
        datetime(2023, 3, 9, 1, tzinfo=UTC),
        datetime(2026, 3, 29, 1, tzinfo=UTC),
        datetime(2026, 10, 25, 1, tzinfo=UTC),
        datetime(2026, 4, 4, 15, tzinfo=UTC),
        datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
    ]
).flatmap(lambda change: st.timedeltas(-2 * DAY, 2 * DAY).map(lambda shift: change + shift))
crons = st.sampled_from(
    [
        "* * * * *",
        "*/5 9-17 * * 1-5",
        "30 2 * * *",
        "*/30 2 * * *",
        "0 */2 * * *",
        "15 0-23 * * *",
        "0 0 * * *",
        "0 0 1 * *",
        "59 23 L * *",
        "0 9 * * MON#1",
        "7,37 1,2,3 * * SUN",
    ]
)
whens = st.one_of(
    st.builds(Every, minutes=st.integers(1, 3000)),
    st.builds(Daily, at=times, zone=zones),
    st.builds(Cron, crons, zone=zones),
)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def between(when: When, after: str, until: str) -> list[str]:
    found = when.between(instant(after), instant(until))
    return [f"{moment:%Y-%m-%dT%H:%MZ}" for moment in found]


def wall(moment: datetime, zone: str) -> datetime:
    return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)


def test_cron_runs_when_its_fields_match_in_its_zone() -> None:
    when = Cron("*/30 9-10 * * 1-5", zone="America/New_York")

    assert between(when, "2026-11-27T00:00Z", "2026-11-30T14:30Z") == [
        "2026-11-27T14:00Z",
        "2026-11-27T14:30Z",
        "2026-11-27T15:00Z",
        "2026-11-27T15:30Z",
        "2026-11-30T14:00Z",
        "2026-11-30T14:30Z",
    ]


@pytest.mark.parametrize(
    ("at", "zone", "after", "expected"),
    [
        ("02:30", "Europe/Berlin", "2026-03-29T00:00Z", "2026-03-29T01:00Z"),
        ("02:30", "Europe/Berlin", "2026-10-25T00:00Z", "2026-10-25T00:30Z"),
        ("02:30", "America/New_York", "2026-03-08T05:00Z", "2026-03-08T07:00Z"),
        ("01:30", "America/New_York", "2026-11-01T04:00Z", "2026-11-01T05:30Z"),
        ("02:15", "Australia/Lord_Howe", "2026-10-03T13:00Z", "2026-10-03T15:30Z"),
        ("01:45", "Australia/Lord_Howe", "2026-04-04T13:00Z", "2026-04-04T14:45Z"),
        ("00:00", "Africa/Cairo", "2026-04-23T20:00Z", "2026-04-23T22:00Z"),
        ("23:30", "Africa/Cairo", "2026-10-29T12:00Z", "2026-10-29T20:30Z"),
        ("00:15", "America/Sao_Paulo", "2018-11-04T00:00Z", "2018-11-04T03:00Z"),
        ("23:30", "America/Sao_Paulo", "2019-02-16T12:00Z", "2019-02-17T01:30Z"),
        ("09:00", "Pacific/Apia", "2011-12-30T00:00Z", "2011-12-30T10:00Z"),
        ("09:00", "Asia/Kolkata", "2026-03-29T00:00Z", "2026-03-29T03:30Z"),
    ],
)
def test_a_local_time_skipped_or_repeated_runs_once(
    at: str, zone: str, after: str, expected: str
) -> None:
    hour, minute = at.split(":")
    daily, cron = Daily(at=at, zone=zone), Cron(f"{minute} {hour} * * *", zone=zone)
    until = f"{(instant(after) + timedelta(hours=16)).isoformat()}"

    assert between(daily, after, until)[0] == expected
    assert between(cron, after, until) == between(daily, after, until)


def test_a_lost_day_runs_at_the_start_of_the_next() -> None:
    assert between(
        Daily(at="09:00", zone="Pacific/Apia"), "2011-12-29T00:00Z", "2012-01-01T00:00Z"
    ) == [
        "2011-12-29T19:00Z",
        "2011-12-30T10:00Z",  # the 30th, which was not: 2011-12-31T00:00+14:00
        "2011-12-30T19:00Z",
        "2011-12-31T19:00Z",
    ]


def test_local_times_that_fall_together_are_one_slot() -> None:
    midnight = Daily(at="00:00", zone="Pacific/Apia")
    halves = Cron("*/30 2 * * *", zone="Europe/Berlin")

    assert between(midnight, "2011-12-30T00:00Z", "2011-12-31T00:00Z") == ["2011-12-30T10:00Z"]
    assert between(halves, "2026-03-29T00:00Z", "2026-03-29T12:00Z") == ["2026-03-29T01:00Z"]


def test_a_cron_hour_that_occurs_twice_runs_in_the_first() -> None:
    when = Cron("*/30 2 * * *", zone="Europe/Berlin")

    assert between(when, "2026-10-24T12:00Z", "2026-10-25T12:00Z") == [
        "2026-10-25T00:00Z",
        "2026-10-25T00:30Z",
    ]


@pytest.mark.parametrize("hours", ["*", "0-23", "0-11,12-23", "*/1"])
def test_a_cron_for_every_hour_follows_elapsed_time(hours: str) -> None:
    when = Cron(f"30 {hours} * * *", zone="Europe/Berlin")

    autumn = between(when, "2026-10-24T23:00Z", "2026-10-25T03:00Z")
    spring = between(when, "2026-03-28T23:00Z", "2026-03-29T03:00Z")

    assert autumn == [f"2026-10-{day}:30Z" for day in ("24T23", "25T00", "25T01", "25T02")]
    assert spring == [f"2026-03-{day}:30Z" for day in ("28T23", "29T00", "29T01", "29T02")]


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: Every(minutes=0), "minutes=0"),
        (lambda: Every(minutes=-5), "minutes=-5"),
        (lambda: Every(minutes=10**12), "from 1 to"),
        (lambda: Every(minutes=1.5), "whole number"),
        (lambda: Every(minutes=True), "minutes=True"),
        (lambda: Daily(at="9:00", zone="UTC"), "at='9:00'.*'09:00'"),
        (lambda: Daily(at="24:00", zone="UTC"), "at='24:00'"),
        (lambda: Daily(at="09:00:00", zone="UTC"), "at='09:00:00'"),
        (lambda: Daily(at="09:00\n", zone="UTC"), "at="),
        (lambda: Daily(at="0\u0669:00", zone="UTC"), "at="),
        (lambda: Daily(at=9, zone="UTC"), "at=9: write hour"),
        (lambda: Daily(at="09:00", zone=1), "zone=1"),
        (lambda: Cron(5, zone="UTC"), "expression 5: write five fields"),
        (lambda: Daily(at="09:00", zone="Europe/Berlni"), "zone='Europe/Berlni'.*'Europe/Berlin'"),
        (lambda: Daily(at="09:00", zone=""), "zone=''"),
        (lambda: Daily(at="09:00", zone="Europe"), "zone='Europe'"),
        (lambda: Daily(at="09:00", zone="localtime"), "zone='localtime'"),
        (lambda: Daily(at="09:00", zone="../../etc/passwd"), "zone="),
        (lambda: Daily(at="09:00", zone="/etc/localtime"), "zone="),
        (lambda: Daily(at="09:00", zone="\ud800"), "zone="),
        (lambda: Cron("* * * *", zone="UTC"), r"'\* \* \* \*': write five fields"),
        (lambda: Cron("0 * * * * *", zone="UTC"), "write five fields"),
        (lambda: Cron("", zone="UTC"), "write five fields"),
        (lambda: Cron("61 * * * *", zone="UTC"), "Bad minute"),
        (lambda: Cron("* * 31 2 *", zone="UTC"), "Bad day-of-month"),
        (lambda: Cron("0 0 */31 * MON#2", zone="UTC"), "no day matches it"),
        (lambda: Cron("*/0 * * * *", zone="UTC"), "Bad minute"),
        (lambda: Cron("9" * 5000 + " * * * *", zone="UTC"), "cron expression"),
        (lambda: Cron("0 0 * 2 MON#5", zone="Mars/Olympus"), "zone='Mars/Olympus'"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_with_its_value(build, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        build()


@given(when=whens, now=moments, span=st.timedeltas(MINUTE, 3 * DAY))
def test_slots_lie_in_their_window_in_order_and_differ(
    when: When, now: datetime, span: timedelta
) -> None:
    found = when.between(now - span, now)

    assert all(now - span < moment <= now for moment in found)
    assert all(moment.tzinfo is UTC and moment.microsecond == 0 for moment in found)
    assert found == sorted(set(found))


@given(when=whens, now=moments, cuts=st.lists(st.timedeltas(MINUTE, DAY), max_size=4))
def test_windows_laid_end_to_end_hold_each_slot_once(
    when: When, now: datetime, cuts: list[timedelta]
) -> None:
    edges = sorted({now - cut for cut in cuts} | {now, now - 2 * DAY})

    pieces = [moment for a, b in pairwise(edges) for moment in when.between(a, b)]

    assert pieces == when.between(now - 2 * DAY, now)


def first_shown(planned: datetime, zone: str) -> datetime:
    moment = planned.replace(tzinfo=UTC) - timedelta(hours=15)
    while wall(moment, zone) < planned:
        moment += MINUTE
    return moment


@given(zone=zones, at=times, start=moments)
def test_there_is_one_slot_per_local_day(zone: str, at: str, start: datetime) -> None:
    days = [start.date() + n * DAY for n in range(-2, 5)]
    planned = [datetime.combine(day, time.fromisoformat(at)) for day in days]
    expected = sorted({first_shown(moment, zone) for moment in planned})

    found = Daily(at=at, zone=zone).between(start, start + 2 * DAY)

    assert found == [moment for moment in expected if start < moment <= start + 2 * DAY]


@given(zone=zones, at=times, now=moments)
def test_a_daily_rule_and_its_cron_say_the_same(zone: str, at: str, now: datetime) -> None:
    hour, minute = at.split(":")

    daily = Daily(at=at, zone=zone).between(now - 3 * DAY, now)

    assert Cron(f"{minute} {hour} * * *", zone=zone).between(now - 3 * DAY, now) == daily


@given(zone=zones, now=moments, hours=st.sampled_from(["*", "0-23"]))
def test_a_cron_for_every_minute_is_every_minute(zone: str, now: datetime, hours: str) -> None:
    start = now - 5 * HOUR

    found = Cron(f"* {hours} * * *", zone=zone).between(start, now)

    assert found == Every(minutes=1).between(start, now)


@given(
    text=st.text(max_size=30)
    | st.lists(st.sampled_from(["*/5", "L", "LW", "1-3", "MON#2", "31", "2"])).map(" ".join)
)
def test_any_text_is_a_cron_expression_or_a_value_error(text: str) -> None:
    try:
        Cron(text, zone="UTC")
    except ValueError:
        return
    assert len(text.split()) == 5


def test_slots_do_not_depend_on_the_zone_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    when = Daily(at="09:00", zone="Europe/Berlin")
    plain = between(when, "2026-03-01T00:00Z", "2026-04-15T00:00Z")

    monkeypatch.setenv("TZ", "America/New_York")
    tzset()
    try:
        assert between(when, "2026-03-01T00:00Z", "2026-04-15T00:00Z") == plain
        assert plain[0] == "2026-03-01T08:00Z"
        assert len(plain) == (date(2026, 4, 14) - date(2026, 2, 28)).days
    finally:
        monkeypatch.undo()
        tzset()
