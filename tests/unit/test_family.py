"""What a family must be like before anything is written, and how a person reads of one."""

import pytest

from reliq.cli.show import _progress
from reliq.domain.family import CHILDREN_MAX, Family, check_family
from reliq.domain.job import NewJob
from reliq.job import Job

pytestmark = pytest.mark.anyio

CHILD, THEN = NewJob(kind="page"), NewJob(kind="book", payload={"n": 1})


def test_a_family_is_checked_and_its_final_payload_is_encoded():
    assert check_family(Family(children=[CHILD] * 3, then=THEN)) == '{"n":1}'
    assert check_family(Family(children=(), then=THEN, on_failure="continue")) == '{"n":1}'


@pytest.mark.parametrize(
    ("family", "said"),
    [
        (
            Family(children=[CHILD], then=THEN, on_failure="stop"),
            "'hold' or 'continue', not 'stop'",
        ),
        (Family(children=iter([CHILD]), then=THEN), r"write list\(…\) around it"),
        (Family(children=range(CHILDREN_MAX + 1), then=THEN), "let children have children"),
        (
            Family(children=[CHILD, NewJob(kind="page", key="p1")], then=THEN),
            "a child takes no key",
        ),
        (Family(children=[], then=NewJob(kind="book", key="b1")), "the final job takes no key"),
        (Family(children=[], then=NewJob(kind="")), "the kind of a job is 1 to 200 bytes"),
        (Family(children=[], then="book"), "a job is a NewJob, not str"),
    ],
)
def test_what_cannot_be_a_family_is_refused_in_words(family, said):
    with pytest.raises(ValueError, match=said):
        check_family(family)


async def test_a_job_asks_its_queue_for_the_family():
    asked = []

    async def fan_out(*arguments):
        asked.append(arguments)
        return 1

    job = Job(
        id=7, kind="split", key="k", payload={}, attempt=1, attempts_max=3, event_id=None,
        _transaction=None, _once=None, _fan_out=fan_out,
    )  # fmt: skip

    assert await job.fan_out("tx", [CHILD], then=THEN) == 1
    assert asked == [("tx", 7, Family(children=[CHILD], then=THEN, on_failure="hold"))]


STATES = dict.fromkeys(("queued", "running", "succeeded", "dead", "cancelled"), 0)


@pytest.mark.parametrize(
    ("family", "said"),
    [
        (
            {
                "children": 9,
                "done": 7,
                "queued": 2,
                "succeeded": 6,
                "dead": 1,
                "on_failure": "hold",
            },
            "7 of 9 have ended (2 queued, 6 succeeded, 1 dead); book waits for all to succeed",
        ),
        (
            {"children": 1, "done": 0, "running": 1, "on_failure": "continue"},
            "0 of 1 have ended (1 running); book waits",
        ),
        (
            {"children": 1, "done": 1, "succeeded": 1, "finished_at": 1, "final_job_id": 12},
            "1 of 1 have ended (1 succeeded); book was made as job 12",
        ),
        (
            {"children": 0, "done": 0, "finished_at": 1, "final_job_id": None},
            "0 of 0 have ended (none is kept); book was made",
        ),
    ],
)
def test_progress_is_told_in_a_line(family, said):
    assert _progress(STATES | {"then_kind": "book", "finished_at": None} | family) == said
