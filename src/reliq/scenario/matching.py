"""Which entries of a history a pattern of a scenario file means."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from reliq.scenario.history import Entry
from reliq.scenario.model import Pattern

_COMPARISON: Final = re.compile(r"(>=|<=|>|<)\s*(-?\d+(?:\.\d+)?)")
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def matches(pattern: Pattern, entry: Entry) -> bool:
    """Compare source, name and every field that the pattern names; an absent field never fits."""
    return (entry.src, entry.e) == (pattern.src, pattern.e) and all(
        name in entry.a and _fits(wanted, entry.a[name]) for name, wanted in pattern.fields.items()
    )


def count(pattern: Pattern, entries: Iterable[Entry]) -> int:
    """Count the entries that fit."""
    return sum(matches(pattern, entry) for entry in entries)


def _fits(wanted: object, seen: Any) -> bool:
    if isinstance(wanted, list):
        return seen in wanted
    comparison = _COMPARISON.fullmatch(wanted) if isinstance(wanted, str) else None
    if comparison and isinstance(seen, int | float):
        return _OPERATORS[comparison[1]](seen, float(comparison[2]))
    return bool(seen == wanted)
