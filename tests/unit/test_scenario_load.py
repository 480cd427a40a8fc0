from pathlib import Path

import pytest

from reliq.errors import ScenarioInvalid
from reliq.scenario.load import load, parse

SCENARIOS = sorted(Path(__file__).parents[2].joinpath("scenarios").glob("*.yml"))

GOOD = """\
scenario: a-name
title: A title
why: A reason
timescale: 60
system:
  worker: {count: 2}
  config: {poll: 3s}
  upstream:
    - {reply: {status: 200}}
load:
  - deliver: {count: 2, key: "evt-{i}", every: 10ms}
steps:
  - id: kill
    when: {event: {src: upstream, e: request, nth: 1}}
    do: {signal: {to: worker-1, sig: KILL}}
settle: {within: 2s}
expect:
  always: [work.all-settle]
  sometimes:
    - {what: a call, count: {src: upstream, e: request}, at_least: 1}
"""


def problems(text: str) -> list[str]:
    found, problems = parse(text)
    assert found is None
    return [f"{place.line}:{place.column}: {text}" for place, text in problems]


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_a_scenario_that_we_ship_loads_is_short_and_is_named_after_its_file(file):
    assert load(file).scenario == file.stem
    assert 10 <= len(file.read_text().splitlines()) <= 40


def test_a_good_file_loads():
    scenario, found = parse(GOOD)

    assert not found
    assert scenario is not None
    assert scenario.names() == ["receiver-1", "worker-1", "worker-2"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("settle:", "setle:", "16:1: 'setle' is not known here: did you mean 'settle'?"),
        ("{poll: 3s}", "{pol: 3s}", "7:12: 'pol' is not known here: did you mean 'poll'?"),
        ("src: upstream, e: request, nth", "src: upstraem, e: request, nth",
         "14:25: 'upstraem' is not known here: did you mean 'upstream'?"),
        ("sig: KILL", "sig: HUP",
         "15:38: 'HUP' is not known here: write one of CONT, KILL, STOP, TERM"),
        ("sig: KILL", "sig: KILL, lasts: 2s",
         "15:18: steps.0.do.signal: only STOP lasts: take `lasts` away from KILL"),
        ("[work.all-settle]", "[work.all-setle]",
         "18:12: 'work.all-setle' is not known here: did you mean 'work.all-settle'?"),
        ("to: worker-1", "to: worker-3",
         "15:23: no process 'worker-3': there are receiver-1, worker-1, worker-2"),
        ("count: 2}", "count: two}",
         "6:19: system.worker.count: Input should be a valid integer"),
        ("every: 10ms", "every: 10",
         "11:48: load.0.deliver.every: 10 is no duration: write it with its unit"),
        ("poll: 3s", "poll: 1s",
         "7:18: poll is 17ms at timescale 60: at least 20ms, or the run measures the machine"),
        ("e: request}, at_least", "e: reqest}, at_least",
         "20:29: expect.sometimes.0.count: upstream tells of no 'reqest': did you mean 'request'?"),
        ("status: 200", "status: 200, status: 502", "9:29: 'status' occurs twice: keep one"),
        ("sometimes:\n    - {what: a call, count: {src: upstream, e: request}, at_least: 1}",
         "sometimes: []",
         "19:14: expect.sometimes: List should have at least 1 item after validation, not 0"),
        (", at_least: 1}", "}",
         "20:7: expect.sometimes.0: say how often: at_least, at_most or exactly"),
        ("when: {event", "when: {at: 1s, event",
         "14:11: steps.0.when: write exactly one trigger: at or event"),
        ("title: A title\n", "", "1:1: 'title' is missing"),
        ("within: 2s}", "within: [}", "16:19: not YAML: expected the node content, but found '}'"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_the_way_out(old, new, said):
    assert old in GOOD

    found = problems(GOOD.replace(old, new))

    assert any(one.startswith(said) for one in found), found


def test_every_mistake_is_told_at_once():
    text = GOOD.replace("title:", "titel:").replace("sig: KILL", "sig: BILL")

    assert sorted(int(one.split(":")[0]) for one in problems(text)) == [1, 2, 15]


def test_two_steps_may_not_share_a_name():
    step = GOOD[GOOD.index("  - id") : GOOD.index("settle")]

    assert "16:9: a second step named 'kill': give it its own id" in problems(
        GOOD.replace("settle:", f"{step}settle:")
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "just a text", "- a\n- list\n"])
def test_what_is_no_scenario_at_all_is_refused(text):
    assert problems(text)


def test_a_file_that_is_not_there_is_a_mistake_too(tmp_path):
    with pytest.raises(ScenarioInvalid, match=r"nothing\.yml: cannot be read"):
        load(tmp_path / "nothing.yml")


def test_the_error_names_the_file(tmp_path):
    file = tmp_path / "wrong.yml"
    file.write_text(GOOD.replace("settle:", "setle:"))

    with pytest.raises(ScenarioInvalid) as caught:
        load(file)

    assert f"{file}:16:1: 'setle'" in str(caught.value)
