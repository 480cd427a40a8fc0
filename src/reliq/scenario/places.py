"""
YAML with the place of every part, and `include`: files merged below the one that names them.

Maps are merged deeply, lists are appended, and the including file has the last word. Places
survive it: what was wrong in an included file is told with that file's name and line.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from typing_extensions import override

Location = tuple[str | int, ...]


class Place(NamedTuple):
    """File, line and column, the latter from 1."""

    file: str
    line: int
    column: int

    @override
    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problem(NamedTuple):
    """Where, and what to do about it."""

    place: Place
    text: str


class Places:
    """Where each part of a document stands: its key, and its value."""

    def __init__(self, root: yaml.Node | None, file: Path) -> None:
        self._keys: dict[Location, Place] = {}
        self._values: dict[Location, Place] = {(): Place(str(file), 1, 1)}
        if root is not None:
            self._walk(root, ())

    def of(self, at: Location, *, key: bool = False) -> Place:
        """Find the place of a part, or of the nearest part around it that is in the file."""
        table = self._keys if key else self._values
        while at and at not in table:
            at, table = at[:-1], self._values
        return table[at]

    def _walk(self, node: yaml.Node, at: Location) -> None:
        self._values[at] = place_of(node.start_mark)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._keys[*at, key.value] = place_of(key.start_mark)
                self._walk(value, (*at, key.value))
        elif isinstance(node, yaml.SequenceNode):
            for n, value in enumerate(node.value):
                self._walk(value, (*at, n))


class Document:
    """One file with what it includes: its `content` as plain values, its places, its problems."""

    def __init__(self, file: Path, text: str | None = None) -> None:
        self.problems: list[Problem] = []
        root = self._merged(file, text, ())
        self.places = Places(root, file)
        self.content: Any = None if root is None else self._construct(root)

    def _merged(
        self, file: Path, text: str | None, including: tuple[Path, ...]
    ) -> yaml.Node | None:
        root = self._composed(file, text)
        if not isinstance(root, yaml.MappingNode):
            return root
        for key, value in root.value:
            if key.value == "include" and isinstance(value, yaml.SequenceNode):
                below: yaml.Node | None = None
                for name in value.value:
                    path = file.parent / str(name.value)
                    if path in including or not path.is_file():
                        why = "includes itself" if path in including else "is no file"
                        self._complain(name.start_mark, f"include: {path} {why}")
                        continue
                    found = self._merged(path, None, (*including, file))
                    below = found if below is None else merge(below, found)
                return root if below is None else merge(below, root)
        return root

    def _composed(self, file: Path, text: str | None) -> yaml.Node | None:
        try:
            loader = yaml.SafeLoader(file.read_text(encoding="utf-8") if text is None else text)
            loader.name = str(file)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            self.problems.append(Problem(Place(str(file), 1, 1), f"cannot be read: {error}"))
            return None
        try:
            root: yaml.Node | None = loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            self._complain(error.problem_mark, f"not YAML: {error.problem}", file)
            return None
        finally:
            loader.dispose()
        if root is None:
            self.problems.append(Problem(Place(str(file), 1, 1), "the file is empty"))
        else:
            self.problems += twice(root)
        return root

    def _construct(self, root: yaml.Node) -> Any:
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_document(root)
        except yaml.MarkedYAMLError as error:
            self._complain(error.problem_mark, f"not YAML: {error.problem}")
            return None
        finally:
            loader.dispose()

    def _complain(self, mark: Any, text: str, file: Path | None = None) -> None:
        place = place_of(mark) if mark else Place(str(file or ""), 1, 1)
        self.problems.append(Problem(place, text))


def place_of(mark: Any) -> Place:
    """Turn YAML's mark into a place."""
    return Place(mark.name, mark.line + 1, mark.column + 1)


def twice(node: yaml.Node) -> Iterator[Problem]:
    """Report keys that occur twice, which YAML lets pass."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.value in seen:
                yield Problem(place_of(key.start_mark), f"{key.value!r} occurs twice: keep one")
            seen.add(key.value)
            yield from twice(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from twice(value)


def merge(below: yaml.Node, above: yaml.Node | None) -> yaml.Node:
    """Lay one document over another."""
    if isinstance(below, yaml.MappingNode) and isinstance(above, yaml.MappingNode):
        pairs = {key.value: (key, value) for key, value in below.value}
        for key, value in above.value:
            old = pairs.get(key.value)
            pairs[key.value] = (key, value if old is None else merge(old[1], value))
        return yaml.MappingNode(above.tag, list(pairs.values()), above.start_mark, above.end_mark)
    if isinstance(below, yaml.SequenceNode) and isinstance(above, yaml.SequenceNode):
        both = [*below.value, *above.value]
        return yaml.SequenceNode(above.tag, both, above.start_mark, above.end_mark)
    return below if above is None else above
