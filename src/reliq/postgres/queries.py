"""
Load `sql/*.sql`, one statement a file, each with a header that a test compares with Postgres.

A header is the comment block on top: `name: what it does`, parameters as `$1  name  type`,
and `Returns:` with columns and types. On the wire a statement keeps one comment with its
name and the names of its parameters, so that a log or a proxy can tell what it sees:
`/* settle_succeeded $1 ids $2 fences */ update …`.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_PARAMETER = re.compile(r"^\s+\$(\d+)\s+(\w+)\s+(\S.*?)\s*$")
_COLUMN = re.compile(r"^(\w+) (\S.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One statement: its text for the wire, and what its header promises."""

    name: str
    text: str
    parameters: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...]
    keeps: tuple[str, ...]
    header: tuple[str, ...]


def parse(name: str, source: str) -> Query:
    """
    Split a file into header and statement.

    Raises:
        ValueError: the header does not name the file, or numbers its parameters wrongly.

    """
    lines = source.splitlines()
    length = next((n for n, line in enumerate(lines) if not line.startswith("--")), len(lines))
    header = [line[2:].rstrip() for line in lines[:length]]
    if not header or not header[0].strip().startswith(f"{name}: "):
        raise ValueError(f"{name}.sql must begin with `-- {name}: what it does`")
    found = [match for line in header if (match := _PARAMETER.match(line))]
    if [int(match[1]) for match in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"{name}.sql must list its parameters as $1, $2, …")
    parameters = tuple((match[2], match[3]) for match in found)
    columns = tuple(
        (match[1], match[2])
        for item in _paragraph(header, "Returns:")
        if (match := _COLUMN.match(item))
    )
    label = " ".join([name, *(f"${n} {label}" for n, (label, _) in enumerate(parameters, 1))])
    body = "\n".join(lines[length:]).strip().removesuffix(";")
    return Query(
        name=name,
        text=f"/* {label} */ {body}",
        parameters=parameters,
        columns=columns,
        header=tuple(header),
        keeps=tuple(
            re.sub(r"\(.*?\)", "", item).strip(" .") for item in _paragraph(header, "Keeps:")
        ),
    )


def _paragraph(header: list[str], word: str) -> list[str]:
    """Split the comma-separated words after `word`, up to the next paragraph's word."""
    text = "\n".join(header)
    if (match := re.search(rf"^ {word}(.*?)(?=^ \w+:|\Z)", text, re.MULTILINE | re.DOTALL)) is None:
        return []
    return [" ".join(item.split()) for item in match[1].split(",") if item.strip()]


@cache
def query(name: str) -> Query:
    """Load one statement by name."""
    return parse(name, (files("reliq.postgres") / "sql" / f"{name}.sql").read_text())


def names() -> list[str]:
    """List every statement there is."""
    found = (files("reliq.postgres") / "sql").iterdir()
    return sorted(item.name.removesuffix(".sql") for item in found if item.name.endswith(".sql"))
