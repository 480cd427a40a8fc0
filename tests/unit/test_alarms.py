"""Which alarms are on, and what is told of them: on, again, over, and who flutters."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reliq.domain.alarms import (
    ERRORS_TOLD,
    SLOTS_ASKED,
    Alarm,
    Bounds,
    Error,
    Figures,
    alarms_on,
    decide,
    signs_of_life,
)
from reliq.domain.slots import Schedule
from reliq.domain.when import Daily, Every

NOW = datetime(2026, 11, 30, 12, 0, 30, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
BOUNDS = Bounds(dead=20, same_error=10, lost_leases=5, due_age=10 * MINUTE, window=HOUR)
QUIET = Figures(now=NOW, late={})


def error(jobs, kind="job"):
    return Error(kind=kind, fingerprint="ab12", jobs=jobs, error="no such account")


@pytest.mark.parametrize(
    ("figures", "name", "words"),
    [
        ({"died": 20}, ("dead", ""), ["20 jobs died within 1h", "reliq failed"]),
        ({"died": 5_000, "died_at_least": True}, ("dead", ""), ["5000 or more jobs died"]),
        ({"errors": [error(10)]}, ("same-error", ""),
         ["10 of kind job", "--kind job --error ab12", "no such account"]),
        ({"alerts_lost": 1}, ("alerts", ""), ["1 alerts never arrived"]),
        ({"late": {"mail": (3, 11 * MINUTE)}}, ("due", "mail"),
         ["queue mail", "3 or more", "11m"]),
        ({"overdue": ["report"]}, ("slot", "report"), ["schedule report is overdue by 10m"]),
        ({"lost_leases": 5, "lost_workers": 2}, ("workers", ""), ["2 workers", "5 leases"]),
        ({"stuck": 7}, ("leases", ""), ["7 running jobs", "10m ago"]),
        ({"breakers": ["crm"]}, ("breaker", "crm"), ["queue crm is open"]),
    ],
)  # fmt: skip
def test_each_alarm_says_what_is_wrong_and_where_to_look(figures, name, words):
    on = alarms_on(replace(QUIET, **figures), BOUNDS)

    assert list(on) == [name]
    assert [word for word in words if word not in on[name]] == []


@pytest.mark.parametrize(
    "figures", [{}, {"died": 19}, {"errors": [error(9)]}, {"lost_leases": 4, "lost_workers": 4}]
)
def test_what_is_below_its_bound_is_no_alarm(figures):
    assert alarms_on(replace(QUIET, **figures), BOUNDS) == {}


def test_many_errors_of_many_jobs_are_one_alarm_that_quotes_a_few():
    on = alarms_on(replace(QUIET, errors=[error(50, f"kind{n}") for n in range(10)]), BOUNDS)

    assert list(on) == [("same-error", "")]
    assert on["same-error", ""].count("of kind") == ERRORS_TOLD


# What is told ------------------------------------------------------------------------------------

BREAKER, DEAD, DUE = ("breaker", "crm"), ("dead", ""), ("due", "mail")


def looks(*looks):
    """Look a minute apart at these alarms, or after the minutes in front; collect what was told."""
    alarms, now, told = [], NOW, []
    for names in looks:
        if isinstance(names, int):
            now += (names - 1) * MINUTE
            continue
        on = {name: f"{':'.join(name)} is on" for name in names}
        watched = decide(on, alarms, now=now, window=HOUR)
        alarms = watched.alarms
        told.append(watched.news)
        now += MINUTE
    return told


ON = "reliq: breaker:crm is on"
WELL = "reliq: all well again.\nover after {}: breaker:crm is on"


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ([[], []], [None, None]),
        ([[BREAKER], [BREAKER], [BREAKER]], [ON, None, None]),
        ([[BREAKER], [], []], [ON, WELL.format("1m"), None]),
        ([[BREAKER], 60, [BREAKER], [BREAKER]], [ON, f"{ON} (for 1h)", None]),
        ([[BREAKER], 59, [BREAKER], [BREAKER]], [ON, None, f"{ON} (for 1h)"]),
        ([[BREAKER], [], [BREAKER], []], [ON, WELL.format("1m"), None, None]),
        ([[BREAKER], [], [BREAKER], 58, [BREAKER]], [ON, WELL.format("1m"), None, f"{ON} (for 58m)"]),
        ([[BREAKER], [], 60, [BREAKER], []], [ON, WELL.format("1m"), ON, WELL.format("1m")]),
        ([[BREAKER], [BREAKER, DEAD], [DEAD], []],
         [ON, "reliq: dead: is on", None, f"{WELL.format('2m')}\nover after 2m: dead: is on"]),
        ([[BREAKER, DEAD]], [f"{ON}\ndead: is on"]),
        ([[DUE], []], [None, None]),
        ([[DUE], [DUE], [DUE], []],
         [None, "reliq: due:mail is on (for 1m)", None,
          "reliq: all well again.\nover after 3m: due:mail is on"]),
        ([[DUE], [], [DUE], [DUE]], [None, None, None, "reliq: due:mail is on (for 1m)"]),
        ([[BREAKER], [DUE], []], [ON, None, WELL.format("1m")]),
    ],
)  # fmt: skip
def test_an_alarm_is_told_when_it_comes_again_after_each_window_and_when_all_is_over(seen, told):
    assert looks(*seen) == told


def test_one_that_flutters_for_a_day_makes_two_messages_a_window():
    told = looks(*[[BREAKER], []] * (24 * 30))

    assert len([text for text in told if text]) == 2 * 24


def test_what_is_over_and_told_is_forgotten_after_a_window():
    over = Alarm(name=BREAKER, text="x", since=NOW, told_at=NOW, ended_at=NOW + MINUTE)

    assert decide({}, [over], now=NOW + 59 * MINUTE, window=HOUR).alarms == [over]
    assert decide({}, [over], now=NOW + HOUR, window=HOUR).alarms == []


def test_a_clock_that_was_set_back_silences_nobody():
    told = Alarm(name=BREAKER, text="x", since=NOW, told_at=NOW, end_owed=True)

    assert decide({BREAKER: "x"}, [told], now=NOW - HOUR, window=HOUR).news is not None


def test_who_is_seen_once_is_on_already_and_holds_back_the_ping():
    assert [alarm.name for alarm in decide({DUE: "x"}, [], now=NOW, window=HOUR).on] == [DUE]


# Slots -------------------------------------------------------------------------------------------

LATE = 10 * MINUTE


def asked(schedule, now=NOW):
    return [slot.key for slot in signs_of_life(schedule, now=now, late=LATE)]


def test_of_a_schedule_its_newest_late_slot_is_asked_for_and_what_came_after():
    assert asked(Schedule(kind="r", when=Daily(at="09:00", zone="UTC"))) == [
        "r@2026-11-30T09:00:00Z"
    ]
    assert asked(Schedule(kind="r", when=Every(minutes=5))) == [
        "r@2026-11-30T11:50:00Z", "r@2026-11-30T11:55:00Z", "r@2026-11-30T12:00:00Z",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(kind="r", when=Daily(at="09:00", zone="UTC"), missed="none"),
        Schedule(kind="r", when=Every(minutes=1), age_max=2 * LATE),
        Schedule(kind="r", when=Daily(at="11:55", zone="UTC"), age_max=HOUR),
        Schedule(kind="r", when=Daily(at="09:00", zone="UTC"), age_max=2 * HOUR),
    ],
    ids=["missed on purpose", "too old when it is late", "not late yet", "too old"],
)
def test_a_slot_that_need_not_be_there_is_not_asked_for(schedule):
    assert asked(schedule) == []


def test_a_slot_older_than_its_schedule_makes_is_not_asked_for():
    """The one of yesterday was too old when the worker began, and the one of today is not late."""
    daily = Schedule(kind="r", when=Daily(at="11:55", zone="UTC"))

    assert asked(daily) == []
    assert asked(daily, NOW + LATE) == ["r@2026-11-30T11:55:00Z"]


def test_of_a_dense_schedule_the_newest_are_asked_for():
    dense = Schedule(kind="r", when=Every(minutes=1))
    late = timedelta(hours=5)

    slots = signs_of_life(dense, now=NOW, late=late)

    assert len(slots) == SLOTS_ASKED
    assert slots[-1].key == "r@2026-11-30T12:00:00Z"
