"""
Read scenario files; what is wrong is told with file, line, column and the nearest known name.

All problems are told at once, because a person mends them at once.
"""

import difflib
import inspect
import re
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError

from reliq.errors import ScenarioInvalid
from reliq.scenario import invariants
from reliq.scenario.fill import cells, fill, unfilled
from reliq.scenario.model import Scenario
from reliq.scenario.places import Document, Location, Place, Places, Problem

_AT_THE_KEY: Final = frozenset({"extra_forbidden"})
_NOT_FILLED: Final = frozenset({"params", "matrix", "exclude"})


def files_below(paths: Sequence[Path]) -> list[Path]:
    """
    List the scenario files named, and those of the folders named; `_…` are only for inclusion.

    Raises:
        ScenarioInvalid: a path is neither, or a folder holds none.

    """
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("[!_]*.yml")) if path.is_dir() else [path]
        if not inside:
            raise ScenarioInvalid(f"{path}: no scenario files here: they end in .yml")
        found += inside
    return found


def load(path: Path) -> list[Scenario]:
    """
    Read one file: each cell of its matrix.

    Raises:
        ScenarioInvalid: one line for each problem, `file:line:column: what is wrong`.

    """
    found, problems = parse(path)
    if found and found[0].scenario != path.stem:
        place = Document(path).places.of(("scenario",))
        problems = [Problem(place, f"{found[0].scenario!r} must be named as its file: {path.stem}")]
    if problems:
        lines = [f"{place}: {text}" for place, text in sorted(set(problems))]
        raise ScenarioInvalid("\n".join(lines))
    return found


def parse(path: Path, text: str | None = None) -> tuple[list[Scenario], Sequence[Problem]]:
    """Read a file, or the text that is given in its place: its cells, and every problem."""
    try:
        document = Document(path, text)
    except RecursionError:
        return [], [Problem(Place(str(path), 1, 1), "it contains itself, or is too deep")]
    content, places = document.content, document.places
    if content is None:
        return [], document.problems
    if not isinstance(content, dict):
        return [], [Problem(places.of(()), "the file must be a map, with scenario, title, why, …")]
    try:
        chosen = cells(content.get("matrix") or {}, content.get("exclude") or [])
    except (TypeError, AttributeError):
        chosen = [{}]  # the model says what is wrong with the matrix
    found, problems = [], list(document.problems)
    problems += [Problem(places.of(("exclude",)), text) for text in _wrong_exclusions(content)]
    if not chosen:
        problems.append(Problem(places.of(("matrix",)), "no cell is left: nothing would be run"))
    for cell in chosen:
        scenario, more = _cell(content, cell, places)
        problems += more
        if scenario is not None:
            found.append(scenario)
    return ([] if problems else found), problems


def _wrong_exclusions(content: dict[str, Any]) -> Iterator[str]:
    matrix = content.get("matrix") or {}
    for out in content.get("exclude") or []:
        for name, value in out.items() if isinstance(out, dict) else ():
            if name not in matrix or value not in matrix[name]:
                yield f"exclude: the matrix has no {name}={value}"


def _cell(
    content: dict[str, Any], cell: dict[str, Any], places: Places
) -> tuple[Scenario | None, list[Problem]]:
    filled, problems = _filled(content, cell, places)
    if problems:
        return None, problems
    try:
        scenario = Scenario.model_validate(filled)
        problems = [Problem(places.of(at), text) for at, text in scenario.problems()]
    except ValidationError as error:
        return None, [_problem(item, places) for item in error.errors(include_url=False)]
    except (ValueError, ArithmeticError, RecursionError) as error:
        return None, [Problem(places.of(()), f"cannot be worked out: {error}")]
    return scenario.of_cell(cell), [*problems, *_wrong_invariants(scenario, places)]


def _filled(
    content: dict[str, Any], cell: dict[str, Any], places: Places
) -> tuple[dict[str, Any], list[Problem]]:
    """Work one cell's values into the file."""
    params = content.get("params")
    names = {**(params if isinstance(params, dict) else {}), **cell}
    rest = {name: part for name, part in content.items() if name not in _NOT_FILLED}
    problems = []
    for at, text in unfilled(rest):
        try:
            fill(text, names)
        except ValueError as error:
            problems.append(Problem(places.of(at), str(error)))
    if problems:
        return content, problems
    return {**content, **fill(rest, names)}, []


def _problem(item: Any, places: Places) -> Problem:
    at: Location = item["loc"]
    place = places.of(at, key=item["type"] in _AT_THE_KEY)
    match item["type"]:
        case "extra_forbidden":
            return Problem(place, _not_known(str(at[-1]), _fields_of(at[:-1])))
        case "missing":
            inside = f" under {'.'.join(map(str, at[:-1]))!r}" if at[:-1] else ""
            return Problem(place, f"{at[-1]!r} is missing{inside}")
        case "literal_error":
            known = re.findall(r"'([^']*)'", item["ctx"]["expected"])
            return Problem(place, _not_known(str(item["input"]), known))
        case _:
            name = ".".join(map(str, at)) or "the file"
            return Problem(place, f"{name}: {item['msg'].removeprefix('Value error, ')}")


def _wrong_invariants(scenario: Scenario, places: Places) -> Iterator[Problem]:
    known = invariants.load()
    for n, (name, parameters) in enumerate(scenario.expect.promises()):
        place = places.of(("expect", "always", n))
        if name not in known:
            yield Problem(place, _not_known(name, known))
            continue
        takes = [*inspect.signature(known[name].check).parameters][1:]
        for parameter in parameters.keys() - set(takes):
            said = _not_known(parameter, takes) if takes else f"{name} takes no parameters"
            yield Problem(place, said)


def _not_known(name: str, known: Any) -> str:
    names = sorted(known)
    if near := difflib.get_close_matches(name, names, n=1):
        return f"{name!r} is not known here: did you mean {near[0]!r}?"
    return f"{name!r} is not known here: write one of {', '.join(names)}"


def _fields_of(at: Location) -> list[str]:
    """Name the keys that are known at a place of the file."""
    here: Any = Scenario
    for step in at:
        if isinstance(step, int):
            here = get_args(here)[0]
        elif isinstance(here, type) and issubclass(here, BaseModel):
            here = _field(here, step)
        here = _without_optional(here)
    return [field.alias or name for name, field in here.model_fields.items()]


def _field(model: type[BaseModel], name: str) -> Any:
    fields = {field.alias or own: field for own, field in model.model_fields.items()}
    return fields[name].annotation


def _without_optional(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[0]
    if get_origin(annotation) is types.UnionType:
        return next(part for part in get_args(annotation) if part is not types.NoneType)
    return annotation
