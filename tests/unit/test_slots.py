from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq.domain.job import NewJob
from reliq.domain.slots import AGE_MAX_MAX, SLOTS_MAX, Missed, Schedule, Slot, check_ids, due_slots
from reliq.domain.when import Cron, Daily, Every, When

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

zones = st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"])
moments = st.sampled_from(
    [
        datetime(2011, 12, 30, 10, tzinfo=UTC),
        datetime(2026, 3, 29, 1, tzinfo=UTC),
        datetime(2026, 10, 25, 1, tzinfo=UTC),
        datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
    ]
).flatmap(lambda change: st.timedeltas(-2 * DAY, 2 * DAY).map(lambda shift: change + shift))
whens = st.one_of(
    st.builds(Every, minutes=st.integers(1, 3000)),
    st.builds(
        Daily,
        at=st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59)),
        zone=zones,
    ),
    st.builds(
        Cron,
        st.sampled_from(["* * * * *", "*/30 2 * * *", "*/5 9-17 * * 1-5", "0 0 1 * *"]),
        zone=zones,
    ),
)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def keys(schedule: Schedule, now: str, **more: timedelta) -> list[str]:
    return [slot.key for slot in due_slots(schedule, now=instant(now), **more)]


def test_an_hourly_slot_is_the_start_of_the_hour() -> None:
    schedule = Schedule(kind="heartbeat", when=Every(minutes=60))

    assert keys(schedule, "2026-11-29T10:47:11Z") == ["heartbeat@2026-11-29T10:00:00Z"]
    assert keys(schedule, "2026-11-29T10:00:00Z") == ["heartbeat@2026-11-29T10:00:00Z"]
    assert keys(schedule, "2026-11-29T09:59:59.999Z") == ["heartbeat@2026-11-29T09:00:00Z"]


def test_a_daily_job_missed_until_0940_still_runs_that_day() -> None:
    schedule = Schedule(kind="report", when=Daily(at="09:00", zone="Europe/Berlin"))

    assert keys(schedule, "2026-11-29T09:40+01:00") == ["report@2026-11-29T08:00:00Z"]


def test_a_daily_job_runs_only_after_the_given_time() -> None:
    schedule = Schedule(
        kind="report", when=Daily(at="09:00", zone="Europe/Berlin"), age_max=timedelta(hours=12)
    )

    assert keys(schedule, "2026-11-29T08:59:59+01:00") == []
    assert keys(schedule, "2026-11-29T09:00+01:00") == ["report@2026-11-29T08:00:00Z"]


def test_a_slot_of_the_age_limit_is_dropped() -> None:
    schedule = Schedule(
        kind="report", when=Daily(at="09:00", zone="UTC"), age_max=timedelta(hours=2)
    )

    assert keys(schedule, "2026-11-29T10:59:59Z") == ["report@2026-11-29T09:00:00Z"]
    assert keys(schedule, "2026-11-29T11:00:00Z") == []


def test_a_new_schedule_runs_once_for_the_past_unless_it_counts_from_now() -> None:
    now = instant("2026-11-29T10:47Z")
    schedule = Schedule(kind="sync", when=Every(minutes=5))

    assert [slot.at for slot in due_slots(schedule, now=now)] == [instant("2026-11-29T10:45Z")]
    assert due_slots(schedule, now=now, since=instant("2026-11-29T10:45Z")) == []
    assert len(due_slots(schedule, now=now, since=instant("2026-11-29T10:44:59Z"))) == 1
    assert due_slots(schedule, now=now, since=now + 400 * DAY) == []


def test_all_missed_slots_come_oldest_first() -> None:
    schedule = Schedule(
        kind="sync", when=Every(minutes=60), missed="all", age_max=timedelta(hours=3)
    )

    assert keys(schedule, "2026-11-29T10:30Z") == [
        "sync@2026-11-29T08:00:00Z",
        "sync@2026-11-29T09:00:00Z",
        "sync@2026-11-29T10:00:00Z",
    ]


def test_with_none_a_missed_slot_is_not_made_up_for() -> None:
    schedule = Schedule(kind="sync", when=Every(minutes=60), missed="none")

    assert keys(schedule, "2026-11-29T10:01:29Z") == ["sync@2026-11-29T10:00:00Z"]
    assert keys(schedule, "2026-11-29T10:01:30Z") == []
    assert keys(schedule, "2026-11-29T10:04Z", tolerance=5 * MINUTE) == [
        "sync@2026-11-29T10:00:00Z"
    ]


def test_the_job_of_a_slot_carries_its_key() -> None:
    schedule = Schedule(
        kind="report",
        id="report-eu",
        when=Every(minutes=5),
        payload={"a": 1},
        queue="q",
        priority=7,
    )
    slot = Slot(schedule_id="report-eu", at=instant("2026-11-29T10:00Z"))

    assert schedule.job(slot) == NewJob(
        kind="report",
        payload={"a": 1},
        key="report-eu@2026-11-29T10:00:00Z",
        queue="q",
        priority=7,
    )


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"kind": ""}, "kind ''"),
        ({"id": "a@b"}, "'a@b'"),
        ({"id": "a b"}, "'a b'"),
        ({"id": "a\0"}, "without spaces"),
        ({"id": "x" * 201}, "at most 200"),
        ({"missed": "some"}, "missed='some'.*'latest', 'all', 'none'"),
        ({"age_max": timedelta(0)}, "age_max=0:00:00"),
        ({"age_max": AGE_MAX_MAX + MINUTE}, "run again"),
        ({"missed": "all"}, "may find 1440 slots.*shorten age_max"),
        ({"priority": 10}, "priority=10"),
        ({"priority": "1"}, "priority='1': use a whole number from 0 to 9"),
        ({"kind": 7}, "kind 7"),
        ({"id": 7}, "schedule 7"),
        ({"when": "09:00"}, "schedule 'tick': when='09:00': use Every"),
        ({"when": Every}, "use Every"),
        ({"queue": ""}, "schedule 'tick': queue='': use 1 to 200 bytes"),
        ({"age_max": 60}, "schedule 'tick': age_max=60: use a timedelta"),
        ({"payload": [1]}, r"payload=\[1\]: use dict"),
        ({"payload": {"at": datetime(2026, 1, 1, tzinfo=UTC)}}, "schedule 'tick': the payload"),
    ],
)
def test_a_schedule_that_cannot_work_is_refused_with_its_value(wrong, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Schedule(**({"kind": "tick", "when": Every(minutes=1)} | wrong))


@pytest.mark.parametrize(
    ("when", "age_max"),
    [
        (Every(minutes=1), timedelta(minutes=SLOTS_MAX)),
        (Every(minutes=2), timedelta(hours=24)),
        (Cron("* * * * *", zone="UTC"), timedelta(hours=16)),
        (Cron("*/5 * * * *", zone="UTC"), 3 * DAY),
        (Cron("* 12 * * *", zone="UTC"), 16 * DAY),
        (Daily(at="09:00", zone="UTC"), AGE_MAX_MAX),
    ],
)
def test_all_is_accepted_up_to_the_bound(when: When, age_max: timedelta) -> None:
    Schedule(kind="tick", when=when, missed="all", age_max=age_max)


def test_the_bound_holds_also_where_the_clock_change_adds_slots() -> None:
    when = Cron("* 3-18 * * *", zone="Europe/Berlin")
    schedule = Schedule(kind="tick", when=when, missed="all")
    now = instant("2026-03-29T04:00+02:00")

    slots = due_slots(schedule, now=now)

    assert len(when.between(now - DAY, now)) == SLOTS_MAX + 20
    assert len(slots) == SLOTS_MAX
    assert slots[-1].at == now


def test_a_moment_without_a_zone_is_refused() -> None:
    schedule = Schedule(kind="tick", when=Every(minutes=1))
    naive = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)

    with pytest.raises(ValueError, match=r"now=2026-01-01T00:00:00 has no zone"):
        due_slots(schedule, now=naive)
    with pytest.raises(ValueError, match=r"since=2026-01-01T00:00:00 has no zone"):
        due_slots(schedule, now=naive.replace(tzinfo=UTC), since=naive)


def test_schedules_with_one_id_are_refused() -> None:
    a, b = (Schedule(kind="tick", when=Every(minutes=n)) for n in (1, 2))
    c = Schedule(kind="tick", id="tock", when=Every(minutes=1))

    check_ids([a, c])
    with pytest.raises(ValueError, match="'tick'"):
        check_ids([a, b, c])


@given(when=whens, now=moments, missed=st.sampled_from(["latest", "all", "none"]))
def test_the_answer_depends_on_nothing_but_now(when: When, now: datetime, missed: Missed) -> None:
    schedule = Schedule(kind="tick", when=when, missed=missed, age_max=timedelta(hours=16))
    elsewhere = now.astimezone(ZoneInfo("Europe/Berlin"))

    assert due_slots(schedule, now=now) == due_slots(schedule, now=elsewhere)
    assert all(slot.at <= now for slot in due_slots(schedule, now=now))


@given(when=whens, now=moments, age_max=st.timedeltas(MINUTE, timedelta(hours=16)))
def test_all_includes_latest_and_latest_is_its_newest(
    when: When, now: datetime, age_max: timedelta
) -> None:
    latest = Schedule(kind="tick", when=when, age_max=age_max)
    everything = Schedule(kind="tick", when=when, missed="all", age_max=age_max)

    assert due_slots(latest, now=now) == due_slots(everything, now=now)[-1:]


@given(when=whens, start=moments, beats=st.lists(st.timedeltas(MINUTE / 2, MINUTE), max_size=60))
def test_a_scheduler_that_keeps_beating_misses_no_slot(
    when: When, start: datetime, beats: list[timedelta]
) -> None:
    schedule = Schedule(kind="tick", when=when, missed="none")
    seen, now = set[datetime](), start

    for beat in beats:
        now += beat
        seen |= {slot.at for slot in due_slots(schedule, now=now, since=start)}

    assert sorted(seen) == when.between(start, now)


@given(when=whens, now=moments, missed=st.sampled_from(["latest", "all"]))
def test_slots_have_keys_of_their_own(when: When, now: datetime, missed: Missed) -> None:
    schedule = Schedule(kind="tick", when=when, missed=missed, age_max=timedelta(hours=16))

    slots = due_slots(schedule, now=now)

    assert len({slot.key for slot in slots}) == len(slots)
    assert all(instant(slot.key.removeprefix("tick@")) == slot.at for slot in slots)
