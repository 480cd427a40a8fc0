"""
Read a scenario file; what is wrong is told with file, line, column and the nearest known name.

All problems are told at once, because a person mends them at once.
"""

import difflib
import re
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from reliq.errors import ScenarioInvalid
from reliq.scenario import invariants
from reliq.scenario.model import Scenario

Location = tuple[str | int, ...]

_AT_THE_KEY: Final = frozenset({"extra_forbidden"})


class Place(NamedTuple):
    """Line and column, from 1."""

    line: int
    column: int


class Problem(NamedTuple):
    """Where, and what to do about it."""

    place: Place
    text: str


def load(path: Path) -> Scenario:
    """
    Read one file.

    Raises:
        ScenarioInvalid: one line for each problem, `file:line:column: what is wrong`.

    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioInvalid(f"{path}: cannot be read: {error}") from error
    found, problems = parse(text)
    if found is None:
        lines = [f"{path}:{place.line}:{place.column}: {text}" for place, text in sorted(problems)]
        raise ScenarioInvalid("\n".join(lines))
    return found


def parse(text: str) -> tuple[Scenario | None, Sequence[Problem]]:
    """Read a file's text: the scenario, or None and every problem."""
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None, [Problem(Place(1, 1), "the file is empty")]
        places = _Places()
        problems = list(places.walk(root, ()))
        content = loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        place = _place(error.problem_mark) if error.problem_mark else Place(1, 1)
        return None, [Problem(place, f"not YAML: {error.problem}")]
    finally:
        loader.dispose()
    try:
        scenario = Scenario.model_validate(content)
    except ValidationError as error:
        problems += [_problem(item, places) for item in error.errors(include_url=False)]
        return None, problems
    problems += [Problem(places.of(at), text) for at, text in scenario.problems()]
    problems += list(_unknown_invariants(scenario, places))
    return (None if problems else scenario), problems


class _Places:
    """Where each part of the file stands: its key, and its value."""

    def __init__(self) -> None:
        self._keys: dict[Location, Place] = {}
        self._values: dict[Location, Place] = {}

    def walk(self, node: yaml.Node, at: Location) -> Iterator[Problem]:
        """Note all places below a node; report keys that occur twice, which YAML lets pass."""
        self._values[at] = _place(node.start_mark)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                inner = (*at, key.value)
                if inner in self._keys:
                    yield Problem(_place(key.start_mark), f"{key.value!r} occurs twice: keep one")
                self._keys[inner] = _place(key.start_mark)
                yield from self.walk(value, inner)
        elif isinstance(node, yaml.SequenceNode):
            for n, value in enumerate(node.value):
                yield from self.walk(value, (*at, n))

    def of(self, at: Location, *, key: bool = False) -> Place:
        """Find the place of a part, or of the nearest part around it that is in the file."""
        table = self._keys if key else self._values
        while at and at not in table:
            at, table = at[:-1], self._values
        return table.get(at, Place(1, 1))


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _problem(item: Any, places: _Places) -> Problem:
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


def _unknown_invariants(scenario: Scenario, places: _Places) -> Iterator[Problem]:
    known = invariants.load()
    for n, name in enumerate(scenario.expect.always):
        if name not in known:
            yield Problem(places.of(("expect", "always", n)), _not_known(name, known))


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
            here = here.model_fields[step].annotation
        here = _without_optional(here)
    return list(here.model_fields)


def _without_optional(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[0]
    if get_origin(annotation) is types.UnionType:
        return next(part for part in get_args(annotation) if part is not types.NoneType)
    return annotation
