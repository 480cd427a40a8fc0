"""Where the next claim reads: urgent lanes first, behind the cursor, often enough from the head."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq.domain.lanes import HEAD, HEAD_EVERY_S, Lane, Lanes, Position, read_queues

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)

lanes_strategy = st.sets(st.builds(Lane, st.sampled_from("abc"), st.integers(0, 9)))
positions = st.builds(
    Position,
    st.integers(0, 100).map(lambda n: NOON + timedelta(seconds=n)),
    st.integers(1, 100),
)


def discovered(*lanes: Lane, now_s: float = 0.0) -> Lanes:
    found = Lanes()
    found.discover(lanes)
    found.rewind(now_s)
    return found


def test_nothing_is_read_before_a_lane_is_known():
    assert Lanes().order(0.0) == []


@given(lanes_strategy, st.integers(1, 5))
def test_the_most_urgent_priority_comes_first_whatever_the_turn(found, turns):
    lanes = discovered(*found)
    for _ in range(turns):
        order = [lane for lane, _ in lanes.order(0.0)]

        assert set(order) == found
        assert [lane.priority for lane in order] == sorted(lane.priority for lane in found)


def test_queues_of_one_priority_take_turns_in_being_first():
    lanes = discovered(Lane("a", 5), Lane("b", 5), Lane("c", 5))

    first = [lanes.order(0.0)[0][0].queue for _ in range(6)]

    assert sorted(first[:3]) == ["a", "b", "c"]
    assert first[:3] == first[3:]


@given(st.lists(positions, min_size=1))
def test_a_cursor_stands_behind_the_last_job_in_whatever_order_they_come(claimed):
    lane = Lane("a", 5)
    lanes = discovered(lane)

    for position in claimed:
        lanes.advance(lane, position)

    assert lanes.order(0.0) == [(lane, max(claimed))]


def test_a_claim_that_came_short_makes_the_next_one_read_from_the_head():
    lane = Lane("a", 5)
    lanes = discovered(lane)
    lanes.advance(lane, Position(NOON, 7))

    lanes.rewind(0.1)

    assert lanes.order(0.2) == [(lane, HEAD)]


def test_the_head_is_read_at_least_once_a_second():
    lane = Lane("a", 5)
    lanes = discovered(lane, now_s=10.0)
    lanes.advance(lane, Position(NOON, 7))

    assert lanes.order(10.0 + HEAD_EVERY_S / 2) == [(lane, Position(NOON, 7))]
    assert lanes.order(10.0 + HEAD_EVERY_S) == [(lane, HEAD)]


def test_a_known_lane_keeps_its_cursor_and_a_new_one_starts_at_its_head():
    old, new, gone = Lane("a", 1), Lane("a", 2), Lane("a", 3)
    lanes = discovered(old, gone)
    lanes.advance(old, Position(NOON, 7))

    lanes.discover([old, new])

    assert lanes.order(0.0) == [(old, Position(NOON, 7)), (new, HEAD)]


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("", {}),
        (" , ", {}),
        ("urgent", {"urgent": None}),
        ("urgent, default ,reports:20", {"urgent": None, "default": None, "reports": 20}),
        ("tenant:7:3", {"tenant:7": 3}),
    ],
)
def test_the_queues_of_a_worker_are_read(text, queues):
    assert read_queues(text) == queues


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("reports:0", "'reports:0': write reports:20 for a queue that takes 20 places"),
        ("a,reports:x", "'reports:x': write"),
        ("reports:-1", "'reports:-1': write"),
        ("reports:²", "'reports:²': write"),
        ("reports:", "'reports:': write"),
        (":5", "':5': write"),
        ("a,b,a", "the queue 'a' is named twice"),
        ("a:5,a", "the queue 'a' is named twice"),
    ],
)
def test_queues_that_make_no_sense_are_refused_in_words(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        read_queues(text)
