"""`reliq scenario …` as a person runs it: what it prints, leaves and exits with."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "scenarios" / "README.md").read_text()

QUICK = """\
scenario: quick
title: A job fails once
why: It is run again.
matrix: {status: [502, 400]}
system:
  worker: {count: 1}
  config: {backoff: {base: 60s}}
  upstream: [{reply: {status: "${status}"}, times_per_job: 1}]
load:
  - deliver: {count: 1, key: evt}
settle: {within: 5s}
expect:
  always: [events.none-lost, retry.when]
  sometimes:
    - {what: it failed, count: {src: wal, e: failed}, exactly: 1}
  never:
    - {what: a dead letter, count: {src: wal, e: dead}}
"""


@pytest.fixture
def reliq(tmp_path):
    """Run a command in an empty folder that holds `quick.yml`."""
    (tmp_path / "quick.yml").write_text(QUICK)

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "reliq", "scenario", *map(str, words)],
            cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip

    return run


def test_a_run_is_told_in_lines_and_judged_again_from_its_history(reliq, tmp_path):
    done = reliq("run", "quick.yml", "--cell", "status=502", "--postgres", "embedded", "--keep")

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(
        r"^pass: quick\[status=502\] \(seed \d+, [\d.]+ s\)$", done.stdout, re.MULTILINE
    )
    assert "held   retry.when: judged 1" in done.stdout
    assert "met    fault upstream rule 1 (502): hit 1" in done.stdout
    kept = tmp_path / "runs" / "latest"
    assert {"history.jsonl", "plan.json", "run.json", "rows.jsonl", "timeline.html", "logs"} <= {
        path.name for path in kept.iterdir()
    }
    assert {"postgres.log", "receiver-1.log", "worker-1.log"} <= {
        path.name for path in (kept / "logs").iterdir()
    }

    again = reliq("check", kept / "history.jsonl")
    stricter = tmp_path / "quick.yml"
    stricter.write_text(QUICK.replace("e: dead}}", "e: succeeded}}"))
    refused = reliq("check", kept / "history.jsonl", "--expect", stricter)

    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "pass: quick[status=502]")
    assert refused.returncode == 1
    assert "broken: never: a dead letter" in refused.stdout


def test_a_broken_promise_exits_with_1_and_a_program_reads_why(reliq):
    done = reliq("run", "quick.yml", "--postgres", "embedded", "--json", "--jobs", "2")

    results = {
        json.loads(line)["cell"]["status"]: json.loads(line) for line in done.stdout.splitlines()
    }
    assert done.returncode == 1, done.stderr
    assert (results[502]["verdict"], results[400]["verdict"]) == ("pass", "violated")
    [broken] = [one for one in results[400]["invariants"] if one["violations"]]
    assert broken["name"] == "never: a dead letter"
    assert results[400]["repeat"].startswith("reliq scenario run quick.yml --seed")
    assert Path(results[400]["folder"]).name.endswith(str(results[400]["seed"]))


def test_the_placebo_of_a_scenario_is_noticed(reliq):
    done = reliq("placebo", "quick.yml", "--postgres", "embedded")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "placebo: 1 of 1 as they should be" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("lint", "quick.yml"), 0, "1 file, 2 cells: well written"),
        (("lint", "nothing.yml"), 2, "nothing.yml:1:1: cannot be read"),
        (("run", "."), 2, "wrong.yml:6:12: 'cuont' is not known here: did you mean 'count'?"),
        (("run", "quick.yml", "--slice", "3/2"), 2, "--slice is written I/N"),
        (("run", "quick.yml", "--cell", "status=999"), 2, "no cell 'status=999' here"),
        (("run", "quick.yml", "--tag", "nope"), 2, "no scenario has the tags nope"),
        (("check", "quick.yml"), 2, "quick.yml:1: no heading of a history"),
        (("mutants", "."), 2, "no patches here"),
        (("plan", "quick.yml", "--seed", "7"), 0, "quick[status=400]: A job fails once (seed 7)"),
        (("list", "quick.yml"), 0, "quick[status=502]  []  A job fails once: events.none-lost"),
        (("schema",), 0, '"$schema": "https://json-schema.org/draft/2020-12/schema"'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_that_starts_nothing(reliq, tmp_path, words, code, said):
    if words == ("run", "."):
        (tmp_path / "wrong.yml").write_text(
            QUICK.replace("count: 1}\n  config", "cuont: 1}\n  config")
        )

    done = reliq(*words)

    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_scenario_that_the_guide_begins_with_loads_and_holds(reliq, tmp_path):
    [text] = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    file = tmp_path / f"{yaml.safe_load(text)['scenario']}.yml"
    file.write_text(text)

    done = reliq("run", file, "--postgres", "embedded")

    assert done.returncode == 0, done.stdout + done.stderr


def test_ctrl_c_ends_a_run_and_all_that_it_started(tmp_path):
    (tmp_path / "quick.yml").write_text(QUICK)
    command = [
        sys.executable,
        "-m",
        "reliq",
        "scenario",
        "run",
        "quick.yml",
        "--postgres",
        "embedded",
    ]
    run = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    for line in run.stdout:
        if "load: sending" in line:
            break
    started = _children(run.pid)

    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=60)

    assert run.returncode == 130
    assert "interrupted: what was not told above is not judged" in said
    assert started
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []


def _children(pid: int) -> list[int]:
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [found for child in map(int, below) for found in (child, *_children(child))]
