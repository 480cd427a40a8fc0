"""
Read what Postgres's `test_decoding` writes: transactions, with old and new rows, as text.

    BEGIN 771
    table reliq.jobs: UPDATE: old-key: id[bigint]:1 … new-tuple: id[bigint]:1 state[text]:'running' …
    message: transactional: 1 prefix: who, sz: 121 content:{"p": "worker-1", …}
    COMMIT 771 (at 2026-11-29 20:10:11.123456+00)

Nulls of an old row are left out of it, so an absent column is null.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from reliq.errors import HarnessError

Row = Mapping[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CHANGE: Final = re.compile(
    r"table (?:reliq|drill)\.(jobs|events|attempts|job_groups|limits|pauses|parents|effects|"
    r"effect_keys|reports|report_parts): (INSERT|UPDATE|DELETE):(.*)",
    re.DOTALL,
)
"""Other tables are bookkeeping, of the product or of ours."""

_OLD_NEW: Final = re.compile(r" old-key: ((?:[^']|'[^']*')*?) new-tuple: (.*)", re.DOTALL)
"""A text may hold these words too. A doubled quote is the end of one text and the start of one."""

_MESSAGE: Final = re.compile(
    r"message: transactional: 1 prefix: who, sz: \d+ content:(.*)", re.DOTALL
)
_COMMIT: Final = re.compile(r"COMMIT (\d+) \(at ([^)]+)\)")
_COLUMN: Final = re.compile(r"\"?(\w+)\"?\[([^\]]+?(?:\[\])?)\]:('(?:[^']|'')*'|[^ ]+)")
_NUMBERS: Final = frozenset({"bigint", "integer", "smallint"})


@dataclass(frozen=True, slots=True)
class Who:
    """A statement on a table: the process, the product's name of it, how many rows, when."""

    p: str
    stmt: str
    table: str
    op: str
    rows: int
    db: int


@dataclass(frozen=True, slots=True)
class Change:
    """One row: inserted (no old), updated or deleted (no new)."""

    table: str
    op: str
    old: Row | None
    new: Row | None


@dataclass(slots=True)
class Transaction:
    """What was committed at once, in the order in which it was done; `at` is in microseconds."""

    xid: int
    at: int = 0
    parts: list[Change | Who] = field(default_factory=list)


def transactions(lines: Iterable[tuple[int, str]]) -> Iterator[Transaction]:
    """
    Group the lines of a slot, (xid, text) each, into transactions, in the order of the commits.

    Raises:
        HarnessError: a line that is not understood: better no verdict than half a history.

    """
    current: Transaction | None = None
    for xid, text in lines:
        if text.startswith("BEGIN"):
            current = Transaction(xid)
            continue
        current = current or Transaction(xid)  # a message may come before any BEGIN
        if found := _COMMIT.fullmatch(text):
            current.at = microseconds(found[2])
            if current.parts:
                yield current
            current = None
        elif found := _MESSAGE.fullmatch(text):
            current.parts.append(_who(json.loads(found[1])))
        elif found := _CHANGE.fullmatch(text):
            current.parts.append(_change(*found.groups()))
        elif not text.startswith(("message:", "table ")):
            raise HarnessError(f"the write-ahead log says what is not understood: {text[:200]}")


def microseconds(text: str) -> int:
    """Turn a moment as Postgres writes it into whole microseconds since 1970."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def _who(said: dict[str, Any]) -> Who:
    return Who(said["p"] or "", said["stmt"], said["table"], said["op"], said["rows"], said["db"])


def _change(table: str, op: str, rest: str) -> Change:
    match op:
        case "INSERT":
            return Change(table, "insert", None, _row(rest))
        case "DELETE":
            return Change(table, "delete", _row(rest), None)
        case _:
            both = _OLD_NEW.fullmatch(rest)
            old, new = both.groups() if both else ("", rest)
            return Change(table, "update", _row(old), _row(new))


def _row(text: str) -> Row:
    return {name: _value(sort, raw) for name, sort, raw in _COLUMN.findall(text)}


def _value(sort: str, raw: str) -> Any:
    if raw == "null":
        return None
    if sort in _NUMBERS:
        return int(raw)
    if sort == "boolean":
        return raw == "true"
    value = raw[1:-1].replace("''", "'") if raw.startswith("'") else raw
    return microseconds(value) if sort == "timestamp with time zone" else value
