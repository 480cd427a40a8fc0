"""Durations are read as they are written."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq.domain.duration import LONGEST, format_duration, parse_duration

milliseconds = st.integers(0, round(LONGEST.total_seconds()) * 1000)


@given(milliseconds)
def test_what_is_written_is_read_back(count):
    duration = timedelta(milliseconds=count)

    assert parse_duration(format_duration(duration)) == duration


@given(milliseconds)
def test_a_written_duration_has_each_unit_at_most_once_and_in_order(count):
    text = format_duration(timedelta(milliseconds=count))
    units = [unit for unit in ("d", "h", "m", "s", "ms") if unit in _units(text)]

    assert _units(text) == units


def _units(text):
    return [unit for unit in "".join(c if c.isalpha() else " " for c in text).split() if unit]


@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text):
    try:
        duration = parse_duration(text)
    except ValueError:
        return

    assert timedelta(0) <= duration <= LONGEST


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("500ms", 0.5), ("5m", 300), ("1h30m", 5400), (" 35d ", 3024000)],
)
def test_people_write_durations_in_these_ways(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "5 m", "-5s", "5y", "1e3", "5m!", "٣", "99999d", "9" * 400]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match=r"is no duration|longer than a hundred years"):
        parse_duration(text)


def test_a_negative_duration_is_written_with_its_sign():
    assert format_duration(timedelta(seconds=-90)) == "-1m30s"
