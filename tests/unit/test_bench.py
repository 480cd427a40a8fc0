"""What is said about measurements: medians, intervals, verdicts, the picture and the page."""

import random
import xml.etree.ElementTree as ET

import pytest

from reliq.bench.goals import GOALS, ROUNDS_MIN, Goal, against, against_best, judge
from reliq.bench.picture import picture
from reliq.bench.play import Played
from reliq.bench.report import page, reached
from reliq.bench.sample import Sample, interval, medians, ratios


def samples(who: str, rates: list[float], measure: str = "drain") -> list[Sample]:
    return [Sample(measure, who, n, {"jobs_per_s": rate}) for n, rate in enumerate(rates, 1)]


def goal(must: float, aim: float, *, at_most: bool = False, counted: bool = False) -> Goal:
    return Goal(
        "it", lambda found: [one.numbers["jobs_per_s"] for one in found], must, aim,
        at_most=at_most, is_counted=counted,
    )  # fmt: skip


def test_ratios_are_of_one_round_and_leave_out_rounds_without_a_pair():
    found = [*samples("reliq", [10, 30, 50]), *samples("raw", [20, 30])]

    assert ratios(found, "drain", "jobs_per_s", "reliq", "raw") == [0.5, 1.0]


def test_an_interval_holds_the_median_of_what_the_values_were_drawn_from():
    """A 90 % interval: of 200 samples of 15 drawn around 1, about 180 hold it."""
    dice = random.Random(7)
    held = 0
    for _ in range(200):
        found = interval([dice.gauss(1, 0.2) for _ in range(15)])
        assert found is not None
        held += found.low <= 1 <= found.high
    assert 165 <= held <= 198


def test_an_interval_of_nothing_is_none_and_of_one_value_is_that_value():
    assert interval([]) is None
    assert (one := interval([3.0])) is not None
    assert (one.low, one.mid, one.high) == (3.0, 3.0, 3.0)


@pytest.mark.parametrize(
    ("rates", "must", "aim"),
    [
        ([2.0] * ROUNDS_MIN, "met", "missed"),
        ([5.0] * ROUNDS_MIN, "met", "met"),
        ([0.5] * ROUNDS_MIN, "missed", "missed"),
        ([0.5, 2.0] * ROUNDS_MIN, "not resolved", "missed"),
        ([2.0] * (ROUNDS_MIN - 1), "not resolved", "missed"),
        ([], "not measured", "not measured"),
    ],
)
def test_a_goal_is_met_when_the_whole_interval_lies_on_its_side(rates, must, aim):
    found = judge(goal(1.0, 3.0), samples("reliq", rates))

    assert (found.must, found.aim) == (must, aim)


def test_a_goal_that_is_a_ceiling_turns_its_sides_around():
    found = judge(goal(3.0, 1.0, at_most=True), samples("reliq", [2.0] * ROUNDS_MIN))

    assert (found.must, found.aim) == ("met", "missed")


def test_what_is_counted_has_no_noise_and_needs_one_round():
    assert judge(goal(1.0, 1.0, counted=True), samples("reliq", [1.0])).must == "met"


def test_the_best_peer_is_the_fastest_and_neither_ourselves_nor_the_limit():
    found = [*samples("reliq", [6, 6]), *samples("raw", [99, 99]),
             *samples("slow", [1, 1]), *samples("quick", [3, 3])]  # fmt: skip

    assert against_best("drain", "jobs_per_s", found) == [2.0, 2.0]
    assert against_best("drain", "jobs_per_s", samples("reliq", [6])) == []
    assert against("drain", "jobs_per_s", "slow", found) == [6.0, 6.0]


def test_every_goal_of_the_list_can_be_judged_from_nothing():
    assert {judge(one, []).must for one in GOALS} == {"not measured"}
    assert reached([])[1] == []


def test_medians_are_of_each_who_has_the_number():
    found = [*samples("reliq", [1, 2, 9]), Sample("drain", "raw", 1, {"client_us": 4.0})]

    assert medians(found, "drain", "jobs_per_s") == {"reliq": 2}


def test_a_picture_is_one_drawing_with_a_line_and_a_name_for_each():
    text = picture({"a < b": [(0.5, 10), (1.0, 40)], "idle": []})

    drawn = ET.fromstring(text)  # noqa: S314 - our own

    tags = [element.tag.rpartition("}")[2] for element in drawn.iter()]
    assert tags.count("polyline") == 2
    assert "a < b: 40/s" in [element.text for element in drawn.iter()]


def test_a_page_names_who_deletes_and_who_settles_without_a_fence():
    about = [{"name": "other", "version": "1", "settings": "its best", "keeps_finished": False,
              "fenced": False}]  # fmt: skip

    played = Played(samples=samples("reliq", [1.0]), about=about, postgres="18.6", progress={})
    text = page(played, "reliq bench drain", "It is cold.\n")

    assert "| other | 1 | its best | **deleted** | **no** |" in text
    assert "PostgreSQL 18.6" in text
    assert "## What holds back what was missed\n\nIt is cold.\n" in text
