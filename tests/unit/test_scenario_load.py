from pathlib import Path

import pytest

from reliq.errors import ScenarioInvalid
from reliq.scenario.load import files_below, load, parse

SCENARIOS = sorted(Path(__file__).parents[2].joinpath("scenarios").glob("[!_]*.yml"))

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


HERE = Path("a.yml")


def problems(text: str) -> list[str]:
    found, problems = parse(HERE, text)
    assert found == []
    return [f"{place.line}:{place.column}: {text}" for place, text in problems]


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_a_scenario_that_we_ship_loads_and_is_named_after_its_file(file):
    cells = load(file)

    assert {cell.scenario for cell in cells} == {file.stem}
    assert len({cell.id for cell in cells}) == len(cells)
    assert cells[0].title.strip()
    assert cells[0].why.strip()


def test_the_scenarios_that_we_ship_are_short():
    lengths = sorted(len(file.read_text().splitlines()) for file in SCENARIOS)

    assert lengths[len(lengths) // 2] <= 40
    assert lengths[-1] <= 70


def test_a_good_file_loads():
    [scenario], found = parse(HERE, GOOD)

    assert not found
    assert scenario.id == "a-name"
    assert scenario.names() == ["receiver-1", "worker-1", "worker-2"]


MATRIX = (
    GOOD.replace("timescale: 60", "timescale: 60\nparams: {n: 3}\nmatrix: {status: [500, 502], how: [a, b]}\n"
                 "exclude: [{status: 500, how: b}]")
    .replace("status: 200", 'status: "${status}"')
    .replace("count: 2, key", 'count: "${n * 2 + max(1, n // 2)}", key')
    .replace("id: kill", "id: kill-${how}\n    only: {how: a}")
)  # fmt: skip


def test_every_cell_of_the_matrix_is_a_scenario_with_its_values_worked_in():
    cells, found = parse(HERE, MATRIX)

    assert not found
    assert [cell.id for cell in cells] == [
        "a-name[status=500,how=a]", "a-name[status=502,how=a]", "a-name[status=502,how=b]",
    ]  # fmt: skip
    assert [cell.system.upstream[0].reply.status for cell in cells] == [500, 502, 502]
    assert cells[0].load[0].deliver.count == 7
    assert [[step.id for step in cell.steps] for cell in cells] == [["kill-a"], ["kill-a"], []]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("${n * 2", "${m * 2", "no param or matrix is named 'm': there are n, status, how"),
        ("${n * 2", "${n ** 2", "only numbers, names, + - * / // %, min and max are known"),
        ("${n * 2", "${n / 0 * 2", "cannot be worked out"),
        ("${n * 2", "${n * * 2", "is no expression"),
        ("only: {how: a}", "only: {who: a}", "'who' is no dimension of the matrix"),
        ("only: {how: a}", "only: {how: A}", "'A' is none of ['a', 'b']: no cell has this step"),
        ("status: 500, how: b", "state: 500", "exclude: the matrix has no state=500"),
        ("{status: [500, 502]", "{status: []", "no cell is left: nothing would be run"),
    ],
)
def test_an_expression_that_cannot_be_worked_out_is_told(old, new, said):
    assert any(said in one for one in problems(MATRIX.replace(old, new)))


def test_included_files_lie_below_the_one_that_names_them(tmp_path):
    (tmp_path / "_below.yml").write_text(
        "system:\n  worker: {count: 5, concurrency: 3}\n  upstream: [{reply: {status: 418}}]\n"
    )
    file = tmp_path / "a-name.yml"
    file.write_text(GOOD.replace("timescale: 60", "timescale: 60\ninclude: [_below.yml]"))

    [scenario] = load(file)

    assert (scenario.system.worker.count, scenario.system.worker.concurrency) == (2, 3)
    assert [rule.reply.status for rule in scenario.system.upstream] == [418, 200]


def test_a_mistake_in_an_included_file_is_told_with_that_files_name(tmp_path):
    below, file = tmp_path / "_below.yml", tmp_path / "a-name.yml"
    below.write_text("system:\n  worker: {cuont: 5}\n")
    file.write_text(
        GOOD.replace("timescale: 60", "timescale: 60\ninclude: [_below.yml, _gone.yml]")
    )

    with pytest.raises(ScenarioInvalid) as caught:
        load(file)

    assert f"{below}:2:12: 'cuont' is not known here: did you mean 'count'?" in str(caught.value)
    assert f"{file}:5:23: include: {tmp_path / '_gone.yml'} is no file" in str(caught.value)


def test_a_file_that_includes_itself_is_told(tmp_path):
    file = tmp_path / "a-name.yml"
    file.write_text(GOOD.replace("timescale: 60", "timescale: 60\ninclude: [a-name.yml]"))

    with pytest.raises(ScenarioInvalid, match="includes itself"):
        load(file)


def test_folders_are_searched_but_not_for_what_is_only_included(tmp_path):
    for name in ("b.yml", "a.yml", "_c.yml", "notes.md"):
        (tmp_path / name).touch()

    assert files_below([tmp_path, Path("x.yml")]) == [
        tmp_path / "a.yml", tmp_path / "b.yml", Path("x.yml"),
    ]  # fmt: skip
    (tmp_path / "empty").mkdir()
    with pytest.raises(ScenarioInvalid, match="no scenario files here"):
        files_below([tmp_path / "empty"])


def test_an_invariant_takes_only_the_parameters_it_has():
    with_one = GOOD.replace("[work.all-settle]", "[{recover.latency: {within_s: 3}}]")
    wrong = GOOD.replace("[work.all-settle]", "[{recover.latency: {withn_s: 3}}]")
    none = GOOD.replace("[work.all-settle]", "[{work.all-settle: {within_s: 3}}]")

    [scenario], _ = parse(HERE, with_one)
    assert scenario.expect.promises() == [("recover.latency", {"within_s": 3})]
    assert problems(wrong) == ["18:12: 'withn_s' is not known here: did you mean 'within_s'?"]
    assert problems(none) == ["18:12: work.all-settle takes no parameters"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("settle:", "setle:", "16:1: 'setle' is not known here: did you mean 'settle'?"),
        ("{poll: 3s}", "{pol: 3s}", "7:12: 'pol' is not known here: did you mean 'poll'?"),
        ("src: upstream, e: request, nth", "src: upstraem, e: request, nth",
         "14:25: 'upstraem' is not known here: did you mean 'upstream'?"),
        ("sig: KILL", "sig: HUP",
         "15:38: 'HUP' is not known here: write one of CONT, INT, KILL, STOP, TERM"),
        ("sig: KILL}}", "sig: KILL}, start: worker-1}",
         "15:9: steps.0.do: write exactly one action: signal, start"),
        ("do: {signal", "for: 2*leese\n    do: {signal",
         "15:10: steps.0.for: '2*leese' is no"),
        ("[work.all-settle]", "[work.all-setle]",
         "18:12: 'work.all-setle' is not known here: did you mean 'work.all-settle'?"),
        ("to: worker-1", "to: worker-3",
         "15:23: no process 'worker-3': there are"),
        ("count: 2}", "count: two}",
         "6:19: system.worker.count: Input should be a valid integer"),
        ("every: 10ms", "every: 10",
         "11:48: load.0.deliver.every: 10 is no duration: write it with its unit"),
        ("poll: 3s", "poll: 1s",
         "7:18: poll is 17ms at timescale 60: at least 20ms, or the run measures the machine"),
        ("system:\n", "system:\n  postgres: {settings: {lock_timeout: 4ms}}\n",
         "6:39: lock_timeout is below 5ms"),
        ("e: request}, at_least", "e: request, jop: 1}, at_least",
         "20:29: expect.sometimes.0.count: upstream request has no 'jop': did you mean 'job'?"),
        ("e: request}, at_least", 'e: request, job: "=>1"}, at_least',
         "20:29: expect.sometimes.0.count: job: '=>1' compares nothing"),
        ("sig: KILL}}", "sig: KILL}}\n    for: 1s", "15:9: this cannot be undone"),
        ("evt-{i}", "evt-{n}", "11:5: {n} in a key means nothing"),
        ("do: {signal: {to: worker-1, sig: KILL}}", "do: {net: {link: db, toxic: latency}}",
         "15:15: steps.0.do.net: latency without latency does nothing"),
        ("every: 10ms", "every: 2*lease", "11:48: load.0.deliver.every: '2*lease' is no duration"),
        ("e: request}, at_least", "e: reqest}, at_least",
         "20:29: expect.sometimes.0.count: upstream tells of no 'reqest': did you mean 'request'?"),
        ("status: 200", "status: 200, status: 502", "9:29: 'status' occurs twice: keep one"),
        ("sometimes:\n    - {what: a call, count: {src: upstream, e: request}, at_least: 1}",
         "sometimes: []",
         "19:14: expect.sometimes: List should have at least 1 item after validation, not 0"),
        (", at_least: 1}", "}",
         "20:7: expect.sometimes.0: say how often: at_least, at_most or exactly"),
        ("when: {event", "when: {at: 1s, event",
         "14:11: steps.0.when: write exactly one trigger: at, event, point, after"),
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
    with pytest.raises(ScenarioInvalid, match=r"nothing\.yml:1:1: cannot be read"):
        load(tmp_path / "nothing.yml")


def test_the_error_names_the_file(tmp_path):
    file = tmp_path / "wrong.yml"
    file.write_text(GOOD.replace("settle:", "setle:"))

    with pytest.raises(ScenarioInvalid) as caught:
        load(file)

    assert f"{file}:16:1: 'setle'" in str(caught.value)


def test_a_scenario_is_named_as_its_file(tmp_path):
    file = tmp_path / "another.yml"
    file.write_text(GOOD)

    with pytest.raises(
        ScenarioInvalid, match=r"another\.yml:1:11: 'a-name' must be named as its file"
    ):
        load(file)


@pytest.mark.parametrize("text", [
    GOOD.replace("timescale: 60", "timescale: .inf"),
    GOOD.replace("title: A title", "title: &a [*a]"),
    GOOD.replace("system:\n", "system:\n  postgres: {settings: {lock_timeout: soon}}\n"),
])  # fmt: skip
def test_what_cannot_be_worked_out_is_told_and_no_traceback(text):
    assert problems(text)
