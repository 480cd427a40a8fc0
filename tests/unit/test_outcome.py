from datetime import timedelta
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq.domain.job import Claim, EventId, Fence, JobId, Kind
from reliq.domain.outcome import (
    Again,
    Bury,
    Cancelled,
    Done,
    Ending,
    GiveUp,
    Raised,
    Requeue,
    Stopped,
    Succeed,
    SucceedWith,
    TimedOut,
    fingerprint,
    settle,
)
from reliq.domain.retry import RetryPolicy
from reliq.errors import PermanentError, TemporaryError

POLICY = RetryPolicy(attempts_max=3, retry_after_max=timedelta(hours=2))
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)

rolls = st.floats(0, 1, exclude_max=True)
endings = st.sampled_from(
    [
        Done(),
        Again(SECOND),
        GiveUp("no such person"),
        Raised(ValueError("no")),
        Raised(PermanentError("no")),
        Raised(TemporaryError("later", after=30 * SECOND)),
        Raised(TemporaryError("later", after=3 * HOUR)),
        TimedOut(SECOND),
        Stopped(),
    ]
)


def claim(attempt: int = 1, lost_leases: int = 0) -> Claim:
    return Claim(
        job_id=JobId(7),
        fence=Fence(9),
        kind=Kind("mail"),
        key="k",
        payload_json="{}",
        attempt=attempt,
        attempts_max=3,
        lost_leases=lost_leases,
        event_id=EventId(1),
        waited=timedelta(0),
    )


FAILED: dict[str, Any] = {"ended": "failed", "spends": True, "after": 10 * SECOND}


@pytest.mark.parametrize(
    ("ending", "settlement"),
    [
        (Done(), Succeed()),
        (Done({"sent": 3, "to": "é\0"}), SucceedWith('{"sent":3,"to":"é\ufffd"}')),
        (Done(0), SucceedWith("0")),
        (Again(5 * SECOND), Requeue(after=5 * SECOND, ended="again", spends=False)),
        (Again(-5 * SECOND), Requeue(after=0 * SECOND, ended="again", spends=False)),
        (Stopped(), Requeue(after=0 * SECOND, ended="handed_back", spends=False)),
        (Cancelled(), Requeue(after=0 * SECOND, ended="cancelled", spends=True)),
        (GiveUp("gone\0"), Bury(reason="gave_up", ended="failed", error="gone\ufffd")),
        (
            Raised(PermanentError("no", status=400)),
            Bury(
                reason="permanent",
                ended="failed",
                error="PermanentError: no",
                status=400,
                error_class="PermanentError",
            ),
        ),
        (
            Raised(ValueError("no")),
            Requeue(error="ValueError: no", error_class="ValueError", **FAILED),
        ),
        (
            Raised(httpx.ConnectTimeout("no")),
            Requeue(error="ConnectTimeout: no", error_class="httpx.ConnectTimeout", **FAILED),
        ),
        (
            Raised(TemporaryError("no", status=503)),
            Requeue(error="TemporaryError: no", status=503, error_class="TemporaryError", **FAILED),
        ),
        (
            TimedOut(300 * SECOND),
            Requeue(
                **(FAILED | {"ended": "timed_out"}), error="stopped at its time limit of 300 s"
            ),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_ending_is_settled_as_the_table_says(ending: Ending, settlement: object) -> None:
    assert settle(ending, claim(), POLICY, 0.5) == settlement


@pytest.mark.parametrize("attempt", [3, 4])
def test_a_failure_of_the_last_attempt_is_buried_with_its_error(attempt: int) -> None:
    raised = settle(Raised(TemporaryError("no", status=503)), claim(attempt), POLICY, 0.5)
    timed_out = settle(TimedOut(SECOND), claim(attempt), POLICY, 0.5)

    assert raised == Bury(
        reason="attempts", ended="failed", error="TemporaryError: no", status=503,
        error_class="TemporaryError",
    )  # fmt: skip
    assert timed_out == Bury(
        reason="attempts", ended="timed_out", error="stopped at its time limit of 1 s"
    )


@given(
    attempt=st.integers(1, 20_000), ending=st.sampled_from([Again(SECOND), Stopped()]), roll=rolls
)
def test_again_and_hand_back_cost_nothing_however_many(
    attempt: int, ending: Ending, roll: float
) -> None:
    settlement = settle(ending, claim(attempt), POLICY, roll)

    assert isinstance(settlement, Requeue)
    assert not settlement.spends


@given(attempt=st.integers(1, 2), roll=rolls, after=st.timedeltas(timedelta(0), 2 * HOUR))
def test_a_retry_never_comes_before_the_upstream_allows(
    attempt: int, roll: float, after: timedelta
) -> None:
    settlement = settle(Raised(TemporaryError("no", after=after)), claim(attempt), POLICY, roll)

    assert isinstance(settlement, Requeue)
    assert settlement.after >= max(after, POLICY.delay(attempt, roll))
    assert settlement.after <= max(after * (1 + POLICY.jitter), POLICY.delay(attempt, roll))


def test_a_retry_the_upstream_asked_for_is_spread_too() -> None:
    ending = Raised(TemporaryError("no", after=HOUR))

    pauses = [settle(ending, claim(), POLICY, roll) for roll in (0, 0.5)]

    assert [p.after for p in pauses if isinstance(p, Requeue)] == [HOUR, 1.1 * HOUR]


def test_an_upstream_that_asks_for_too_long_ends_the_job() -> None:
    too_long = Raised(TemporaryError("no", status=429, after=2 * HOUR + SECOND))

    assert settle(too_long, claim(), POLICY, 0.5) == Bury(
        reason="retry_after", ended="failed", error="TemporaryError: no", status=429,
        error_class="TemporaryError",
    )  # fmt: skip


@given(ending=endings, attempt=st.integers(1, 20_000), roll=rolls)
def test_an_attempt_beyond_the_last_is_never_spent(
    ending: Ending, attempt: int, roll: float
) -> None:
    settlement = settle(ending, claim(attempt), POLICY, roll)

    if isinstance(settlement, Requeue) and settlement.spends:
        assert attempt < POLICY.attempts_max
    if isinstance(settlement, Requeue):
        assert settlement.after >= timedelta(0)


@pytest.mark.parametrize(("lost_leases", "is_suspect"), [(0, False), (1, False), (2, True)])
def test_a_job_that_lost_its_worker_twice_is_suspect(lost_leases: int, is_suspect: bool) -> None:  # noqa: FBT001
    assert claim(lost_leases=lost_leases).is_suspect == is_suspect


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("job 1 failed", "job 22 failed"),
        ("timeout after 1.5 s", "timeout after 30.25 s"),
        ("object at 0x7f3a", "object at 0x55dead"),
        (
            "no row e3b0c442-98fc-4c14-9afb-f4c8996fb924",
            "no row abcdefab-cdef-4bcd-8def-abcdefabcdef",
        ),
        ("event evt_1Nx8Zk2eZvKY unknown", "event evt_9QqP0aB3cD4e unknown"),
        ("hash deadbeefcafe", "hash 0123456789ab"),
        ("at 2026-11-29T10:00:00Z", "at 2027-01-02T23:59:59Z"),
    ],
)
def test_a_fingerprint_ignores_numbers_and_ids(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other)


@given(number=st.integers(0), words=st.text("abc é", max_size=20))
def test_a_fingerprint_is_stable_over_numbers(number: int, words: str) -> None:
    assert fingerprint(f"{words} {number} left") == fingerprint(f"{words} 7 left")


def test_different_errors_have_different_fingerprints() -> None:
    errors = ["ValueError: no", "KeyError: no", "ValueError: yes", "no such face", ""]

    assert len({fingerprint(error) for error in errors}) == len(errors)
    assert all(len(fingerprint(error)) == 16 for error in errors)


@given(error=st.lists(st.characters() | st.sampled_from("\0\ud800")).map("".join))
def test_any_text_has_a_fingerprint(error: str) -> None:
    assert int(fingerprint(error), 16) >= 0


def test_a_lone_error_of_a_task_group_is_what_counts() -> None:
    error = BaseExceptionGroup(
        "tasks", [ExceptionGroup("more", [PermanentError("no", status=400)])]
    )

    settlement = settle(Raised(error), claim(), RetryPolicy(), roll=0.5)

    assert isinstance(settlement, Bury)
    assert (settlement.reason, settlement.status) == ("permanent", 400)
