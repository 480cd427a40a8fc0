"""The rows of a report's chunk, on their way into the table: checked, written as CSV, and cut into parts."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from types import NoneType
from typing import Any, Final

from reliq.domain.report import Part
from reliq.errors import PermanentError
from reliq.postgres.reports import write_part

PART_CHARACTERS: Final = 256 * 1024
"""Of one part, before its last row: what a worker and a receiver hold in memory of a report."""


def csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    """Write rows as CSV (RFC 4180); None is an empty cell, a moment is ISO 8601."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case date():  # a datetime is one
            return value.isoformat()
        case _:
            return value


class Sheet:
    """A chunk on its way into the table: rows become lines, and lines become parts."""

    def __init__(self, tx: Any, report_id: int, chunk: int, columns: Sequence[str]) -> None:
        self._tx, self._report_id, self._chunk, self._columns = tx, report_id, chunk, columns
        self._names, self._width = set(columns), len(columns)
        self._sort, self._is_named = NoneType, False
        self._buffer = io.StringIO(newline="")
        self._csv = csv.writer(self._buffer)
        self._rows = self._parts = self._written = 0

    async def add(self, row: Any) -> None:
        """Add a row, and write a part when there is enough for one."""
        if type(row) is not self._sort:  # of one sort as a rule: what it is, is asked once
            self._sort, self._is_named = type(row), _is_named(row)
        if self._is_named:
            row = self._by_name(row)
        elif len(row) != self._width:
            raise PermanentError(
                f"a row has {len(row)} cells, and the report {self._width} columns"
            )
        self._csv.writerow([_cell(value) for value in row])
        self._rows += 1
        if self._buffer.tell() >= PART_CHARACTERS:
            await self._write()

    def _by_name(self, row: Mapping[str, Any]) -> list[Any]:
        """Take the cells in the order of the columns; a dict knows none, or its own."""
        if row.keys() != self._names:
            lacks = ", ".join(name for name in self._columns if name not in row) or "nothing"
            more = ", ".join(str(name) for name in row if name not in self._names) or "nothing"
            raise PermanentError(
                f"a row has other names than the report's columns: it lacks {lacks}, "
                f"and has {more} besides"
            )
        return [row[name] for name in self._columns]

    async def close(self) -> int:
        """Write what is left, a chunk without rows too; answer how many rows it has."""
        if self._rows or not self._parts:
            await self._write()
        return self._written

    async def _write(self) -> None:
        self._parts += 1
        part = Part(self._chunk, self._parts, self._rows, self._buffer.getvalue())
        if not await write_part(self._tx, self._report_id, part):
            raise PermanentError(
                f"report {self._report_id} has come to its end without this chunk: ask for it anew"
            )
        self._written += self._rows
        self._rows = 0
        self._buffer.seek(0)
        self._buffer.truncate()


def _is_named(row: object) -> bool:
    """
    Tell a row of names and cells from one of cells alone, as a Record of asyncpg is to who iterates.

    Raises:
        PermanentError: it is neither; the letters of a text would pass for cells.

    """
    if isinstance(row, Mapping):
        return True
    is_cells = hasattr(row, "__len__") and hasattr(row, "__getitem__")
    if is_cells and not isinstance(row, str | bytes | bytearray | memoryview):
        return False
    raise PermanentError(
        f"a row is a sequence of cells, or a dict by the names of the columns, not {type(row).__name__}"
    )
