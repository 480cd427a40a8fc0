"""Policies of kinds: tables of pauses, presets, and what the App makes of them."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq import DEFAULT, MAIL, REPORT, URGENT, WEBHOOK
from reliq.app import App, Handler
from reliq.domain.job import Claim, EventId, Fence, Inserted, JobId, Kind, NewJob
from reliq.domain.outcome import Bury, Raised, Requeue, settle
from reliq.domain.policy import Policy
from reliq.domain.retry import RetryPolicy, RetryTable
from reliq.domain.slots import Schedule
from reliq.domain.when import Every
from reliq.errors import PermanentError
from reliq.job import Job
from reliq.worker.beats import Scheduling

MINUTE = timedelta(minutes=1)
PAUSES = (MINUTE, 5 * MINUTE, 30 * MINUTE, 120 * MINUTE)


@dataclass(frozen=True)
class Paid:
    order: int


async def nothing(job: Job) -> None: ...


def claim(attempt: int = 1, payload: str = "{}") -> Claim:
    return Claim(
        job_id=JobId(7), fence=Fence(9), kind=Kind("paid"), key="k", payload_json=payload,
        attempt=attempt, attempts_max=5, lost_leases=0, event_id=EventId(1), waited=timedelta(0),
    )  # fmt: skip


@given(attempt=st.integers(1, 4), roll=st.floats(0, 1, exclude_max=True))
def test_a_pause_of_a_table_is_spread_by_its_jitter_and_no_more(attempt: int, roll: float) -> None:
    pause = RetryTable(PAUSES, jitter=0.1).delay(attempt, roll)

    assert 0.9 * PAUSES[attempt - 1] <= pause <= 1.1 * PAUSES[attempt - 1]


def test_a_table_allows_one_attempt_more_than_it_has_pauses() -> None:
    table = RetryTable(PAUSES, jitter=0)
    endings = [settle(Raised(ValueError("no")), claim(n), table, 0.5) for n in range(1, 6)]

    assert table.attempts_max == 5
    assert [end.after for end in endings if isinstance(end, Requeue)] == list(PAUSES)
    assert isinstance(endings[-1], Bury)
    assert endings[-1].reason == "attempts"


@pytest.mark.parametrize(
    "pauses_and_jitter",
    [
        ((), 0.1),
        ((MINUTE, timedelta(0)), 0.1),
        ((MINUTE,), 1.0),
        ((MINUTE,), -0.1),
        (MINUTE, 0.1),
        ((60,), 0.1),
    ],
)
def test_a_table_that_cannot_work_is_refused(pauses_and_jitter: Any) -> None:
    pauses, jitter = pauses_and_jitter
    with pytest.raises(ValueError, match=r"RetryTable: (a pause|pauses|jitter)=.*: use"):
        RetryTable(pauses, jitter=jitter)


def test_the_webhook_preset_is_the_table_that_its_name_promises() -> None:
    assert isinstance(WEBHOOK.retry, RetryTable)
    assert WEBHOOK.retry.pauses == PAUSES
    assert 0 < WEBHOOK.retry.jitter <= 0.1


def test_presets_differ_as_their_kinds_do() -> None:
    assert Policy() == DEFAULT
    assert isinstance(MAIL.retry, RetryPolicy)
    assert isinstance(REPORT.retry, RetryPolicy)
    assert MAIL.retry.total() < timedelta(minutes=3) < REPORT.retry.total()
    assert (REPORT.retry.attempts_max, REPORT.time_limit) == (3, timedelta(hours=1))
    assert (URGENT.priority or 0) < 5 < (REPORT.priority or 0)


@pytest.mark.parametrize(
    "wrong",
    [{"priority": 10}, {"priority": -1}, {"queue": ""}, {"queue": "q" * 201},
     {"time_limit": timedelta(0)}, {"time_limit": 5}, {"retry": 3}, {"queue": 7}, {"priority": "1"}],
)  # fmt: skip
def test_a_policy_that_cannot_work_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"Policy: (priority|queue|time_limit|retry)=.*: use"):
        Policy(**wrong)


def test_a_handler_has_its_policys_terms_unless_it_says_otherwise() -> None:
    own = RetryPolicy(attempts_max=2)

    plain, both = Handler(nothing, policy=WEBHOOK), Handler(nothing, own, policy=WEBHOOK)

    assert (plain.retry, plain.time_limit) == (WEBHOOK.retry, WEBHOOK.time_limit)
    assert (both.retry, both.time_limit) == (own, WEBHOOK.time_limit)
    assert Handler(nothing).retry is None


def paying(**changes: Any) -> App:
    policy = Policy(queue="crm", priority=2)
    return App(
        handlers={
            "paid": Handler(nothing, policy=policy, payload=Paid),
            "urgent": Handler(nothing, policy=URGENT),
            "plain": nothing,
        },
        **changes,
    )


@pytest.mark.parametrize(
    ("job", "lane"),
    [
        (NewJob(kind="paid", payload={"order": 7}), ("crm", 2)),
        (NewJob(kind="paid", payload=Paid(7), queue="default"), ("default", 2)),
        (NewJob(kind="paid", payload=Paid(7), priority=5), ("crm", 5)),
        (NewJob(kind="urgent"), ("default", 1)),
        (NewJob(kind="plain"), ("default", 5)),
        (NewJob(kind="somebody else's"), ("default", 5)),
    ],
)
def test_a_job_has_its_kinds_place_unless_its_maker_chose_another(
    job: NewJob, lane: tuple[str, int]
) -> None:
    assert paying().checked(job).lane == lane


def test_without_the_app_a_job_has_the_usual_place() -> None:
    assert NewJob(kind="paid", payload=Paid(7)).lane == ("default", 5)


def test_a_job_that_does_not_fit_is_not_made() -> None:
    with pytest.raises(ValueError, match=r"^a job of kind 'paid': .* Paid: order is missing$"):
        paying().checked(NewJob(kind="paid", payload={"no": 7}))


def test_a_schedule_whose_job_would_not_fit_is_refused_with_the_app() -> None:
    with pytest.raises(ValueError, match="order is missing"):
        paying(schedules=[Schedule(kind="paid", when=Every(minutes=5))])


class Asked:
    """The slots' store: remembers what it was asked to enqueue."""

    def __init__(self) -> None:
        self.jobs: list[NewJob] = []

    async def database_now(self) -> datetime:
        return datetime(2026, 11, 30, 12, tzinfo=UTC)

    async def enqueue_job(self, job: NewJob) -> Inserted:
        self.jobs.append(job)
        return Inserted(JobId(len(self.jobs)))


@pytest.mark.anyio
async def test_the_job_of_a_slot_has_its_kinds_place_unless_its_schedule_chose_another() -> None:
    every, asked = Every(minutes=5), Asked()
    app = paying(
        schedules=[
            Schedule(kind="paid", when=every, payload={"order": 7}),
            Schedule(kind="urgent", when=every, queue="night", priority=9),
        ]
    )

    await Scheduling(app=app, slots=asked, beat=timedelta(seconds=30))()

    assert {job.kind: job.lane for job in asked.jobs} == {
        "paid": ("crm", 2),
        "urgent": ("night", 9),
    }


def test_a_handler_sees_its_payload_in_its_model() -> None:
    model = paying().handler("paid").model
    job = Job.of(claim(payload='{"order": 7}'), lambda: None, lambda _: None, model)  # type: ignore[arg-type, return-value]

    assert (job.data, job.payload) == (Paid(7), {"order": 7})
    assert Job.of(claim(), lambda: None, lambda _: None).data == {}  # type: ignore[arg-type, return-value]
    with pytest.raises(PermanentError, match="order is wrong"):
        Job.of(claim(payload='{"order": "x"}'), lambda: None, lambda _: None, model)  # type: ignore[arg-type, return-value]


def test_what_a_handler_cannot_be_is_told_at_once() -> None:
    with pytest.raises(TypeError, match="an upgrade needs a model"):
        Handler(nothing, upgrade=lambda fields, _: fields)
    with pytest.raises(TypeError, match="a dataclass or a pydantic model"):
        Handler(nothing, payload=dict)


def test_a_preset_can_be_varied() -> None:
    assert replace(WEBHOOK, queue="crm").retry == WEBHOOK.retry
