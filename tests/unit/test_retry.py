from datetime import timedelta
from itertools import pairwise
from math import nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reliq.domain.retry import RetryPolicy

TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)

rolls = st.floats(0, 1, exclude_max=True)
policies = st.builds(
    lambda base, more, jitter: RetryPolicy(base=base, cap=base + more, jitter=jitter),
    st.timedeltas(TICK, timedelta(days=1)),
    st.timedeltas(timedelta(0), timedelta(days=30)) | st.timedeltas(timedelta(0), 9 * TICK),
    st.floats(0, 1, exclude_max=True),
)


@given(policy=policies, attempt=st.integers(1, 20_000), roll=rolls)
@example(policy=RetryPolicy(base=TICK, cap=TICK, jitter=0.75), attempt=1, roll=0.875)
@example(policy=RetryPolicy(base=TICK, cap=TICK, jitter=1 - 1e-16), attempt=1, roll=0.0)
def test_a_retry_waits_no_longer_than_promised(
    policy: RetryPolicy, attempt: int, roll: float
) -> None:
    assert timedelta(0) <= policy.delay(attempt, roll) <= policy.cap


@given(attempt=st.integers(1, 20_000), roll=rolls)
def test_the_pause_never_exceeds_one_hour_by_default(attempt: int, roll: float) -> None:
    assert RetryPolicy().delay(attempt, roll) <= HOUR


@given(policy=policies, attempt=st.integers(1, 20_000), roll=rolls)
def test_a_pause_is_spread_by_the_jitter_and_no_more(
    policy: RetryPolicy, attempt: int, roll: float
) -> None:
    middle = policy.delay(attempt, 0.5)

    pause = policy.delay(attempt, roll)

    assert middle * (1 - policy.jitter) - 2 * TICK <= pause
    assert pause <= middle * (1 + policy.jitter) + 2 * TICK


@pytest.mark.parametrize("attempt", [1, 5, 9, 20, 20_000])
def test_pauses_are_spread_at_the_cap_too(attempt: int) -> None:
    least, most = RetryPolicy().delay(attempt, 0), RetryPolicy().delay(attempt, 0.999_999)

    assert most / least == pytest.approx(1.2 / 0.8, rel=1e-4)


@given(policy=policies, attempt=st.integers(1, 20_000), roll=rolls)
def test_a_pause_grows_with_the_attempts_or_stays(
    policy: RetryPolicy, attempt: int, roll: float
) -> None:
    assert policy.delay(attempt, roll) <= policy.delay(attempt + 1, roll)


def test_pauses_double_until_the_cap() -> None:
    pauses = [RetryPolicy().delay(attempt, 0.5) for attempt in range(1, 12)]

    assert [pause.total_seconds() for pause in pauses[:7]] == [10, 20, 40, 80, 160, 320, 640]
    assert all(later > earlier for earlier, later in pairwise(pauses[:10]))
    assert pauses[9:] == [timedelta(seconds=3000)] * 2


def test_the_defaults_give_up_after_about_21_minutes() -> None:
    assert RetryPolicy().total() == timedelta(seconds=1270)
    assert RetryPolicy(attempts_max=1).total() == timedelta(0)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"base": timedelta(0)}, "RetryPolicy: base=.*: use a timedelta above 0"),
        ({"base": 2 * HOUR}, "base=2:00:00 is above cap=1:00:00"),
        ({"cap": 60}, "RetryPolicy: cap=60: use a timedelta"),
        ({"retry_after_max": None}, "retry_after_max=None: use a timedelta"),
        ({"jitter": 1}, "jitter=1: use a share"),
        ({"jitter": -0.1}, "jitter=-0.1"),
        ({"jitter": nan}, "jitter=nan"),
        ({"jitter": "0.1"}, "jitter='0.1'"),
        ({"attempts_max": 0}, "attempts_max=0: use a whole number from 1"),
        ({"attempts_max": 2.0}, "attempts_max=2.0"),
        ({"attempts_max": True}, "attempts_max=True"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_with_its_value(wrong, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        RetryPolicy(**wrong)
