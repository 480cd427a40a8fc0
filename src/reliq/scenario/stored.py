"""A history in a file: a heading, then one entry a line."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reliq.errors import ScenarioInvalid
from reliq.scenario.history import Entry, History, Terms
from reliq.scenario.model import Scenario


def write_history(
    path: Path, scenario: Scenario, seed: int, history: History, doubts: Sequence[str] = ()
) -> None:
    """Write it, with the terms under which it came about and why it might prove nothing."""
    heading = {
        "scenario": scenario.scenario, "cell": dict(scenario.cell), "seed": seed,
        "terms": history.terms.plain(), "doubts": list(doubts),
        "entries": len(history.entries),
    }  # fmt: skip
    lines = [json.dumps(heading), *(entry.line() for entry in history.entries)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_run(folder: Path, scenario: Scenario, about: dict[str, Any]) -> None:
    """Write what was run (`run.json`) and what was expected of it (`plan.json`)."""
    (folder / "run.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    plan = scenario.model_dump_json(by_alias=True, exclude_defaults=True, indent=2)
    (folder / "plan.json").write_text(plan + "\n", encoding="utf-8")


def read_history(path: Path) -> tuple[dict[str, Any], History]:
    """
    Read a stored history: its heading, and the history.

    Raises:
        ScenarioInvalid: it cannot be read; the message names the line.

    """
    try:
        heading, *lines = path.read_text(encoding="utf-8").splitlines()
        about = json.loads(heading)
        terms = Terms.of(about["terms"])
        about = {"cell": {}, "doubts": [], **about, "seed": int(about["seed"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ScenarioInvalid(f"{path}:1: no heading of a history: {error!r}") from error
    if about.get("entries", len(lines)) != len(lines):
        raise ScenarioInvalid(f"{path}: {about['entries']} entries are told of, {len(lines)} there")
    entries = []
    for n, line in enumerate(lines, 2):
        try:
            entries.append(_entry(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScenarioInvalid(f"{path}:{n}: no entry of a history: {error!r}") from error
    return about, History(entries=entries, terms=terms)


def read_plan(path: Path, cell: Mapping[str, Any]) -> Scenario:
    """
    Read what a run expected, as it is stored beside its history.

    Raises:
        ScenarioInvalid: there is none, or it does not load.

    """
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        return Scenario.model_validate(plan).of_cell(cell)
    except (OSError, ValueError) as error:
        raise ScenarioInvalid(f"{path}: no plan beside this history: {error}") from error


def _entry(said: dict[str, Any]) -> Entry:
    fields = {name: said.pop(name) for name in ("i", "t", "src", "p", "e")}
    return Entry(**fields, a=said)
