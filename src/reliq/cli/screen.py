"""How values look: one JSON document for programs, tables and plain instants for people."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from reliq.domain.duration import format_duration
from reliq.domain.redact import printable

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_PIPED: Final = 160
"""Columns where no terminal says how many it has."""


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document: instants in ISO form and UTC, durations in seconds."""
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False, default=_plain)
    sys.stdout.write("\n")


def _plain(value: object) -> object:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return value.total_seconds()
        case _:
            return str(value)


def console() -> "Console":
    """Open the terminal, or whatever stdout is, for tables; markup in values means nothing."""
    from rich.console import Console  # noqa: PLC0415 - see the package's docstring

    width = None if sys.stdout.isatty() else WIDTH_PIPED
    return Console(width=width, markup=False, highlight=False, emoji=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below their headings; the last column takes what room there is."""
    from rich.table import Table  # noqa: PLC0415 - see the package's docstring
    from rich.text import Text  # noqa: PLC0415 - see the package's docstring

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column != columns[-1])
    for row in rows:
        table.add_row(*(Text(words(value)) for value in row))
    console().print(table)


def print_entry(line: str, detail: str) -> None:
    """Print one thing as a line, and what it says below, on as many lines as it has."""
    print(line)  # noqa: T201 - this is the screen
    for below in detail.splitlines():
        print(f"    {below}")  # noqa: T201


def words(value: object) -> str:
    """Write a value for people: an instant to the second, a duration in its units."""
    match value:
        case None:
            return ""
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        case timedelta():
            return format_duration(value)
        case _:
            return printable(str(value))


def plural(count: int, noun: str) -> str:
    """Count things in words: `1 job`, `2 jobs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
