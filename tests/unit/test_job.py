"""Which keys a caller may give to a job, and which are reliq's own."""

import pytest

from reliq.domain.job import NewJob, check_job


@pytest.mark.parametrize(
    "key", ["event:370:demo:1", "event:370:demo:1:replay-0badcafe", "event:1:demo:\n"]
)
def test_a_key_that_reliq_makes_up_itself_is_refused_in_words(key: str):
    with pytest.raises(ValueError, match=r"the key .* is of the form that reliq makes up"):
        check_job(NewJob(kind="demo", key=key))


@pytest.mark.parametrize(
    ("group", "running"), [("a", 0), ("a", -1), ("a", 1_001), (None, 2), ("a", 2.5), ("a", None)]
)
def test_how_many_of_a_group_may_run_is_refused_where_it_makes_no_sense(group, running):
    with pytest.raises(ValueError, match=r"group_running"):
        check_job(NewJob(kind="demo", group_key=group, group_running=running))


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("demo", None),
        ("demo", "mine:job:17"),
        ("demo", "job:17"),  # what a handler passes on of a job without a key of its own
        ("demo", "job:\u06f1\u06f7"),  # digits, but none that Postgres writes
        ("demo", "event:370"),
        ("demo", "event:370:other:1"),  # another kind's: what a handler passes on to its child
        ("demo", "event:370:demo@2026-11-30T09:00:00Z"),  # a slot of the schedule event:370:demo
        ("alert", "event:370:0badcafe:489123"),  # an alert about a dead job of kind event:370
        ("a+b", "event:370:aab:1"),
    ],
)
def test_any_other_key_is_the_callers(kind: str, key: str | None):
    assert check_job(NewJob(kind=kind, key=key)) == "{}"
