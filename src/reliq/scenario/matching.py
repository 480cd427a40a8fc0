"""Which entries of a history a pattern of a scenario file means."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from reliq.scenario.history import Entry
from reliq.scenario.model import Pattern, Quantity
from reliq.scenario.model.matching import COMPARISON

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def matches(pattern: Pattern, entry: Entry) -> bool:
    """Compare source, name and every field that the pattern names; an absent field never fits."""
    if (entry.src, entry.e) != (pattern.src, pattern.e):
        return False
    return all(_fits(wanted, value(entry, name)) for name, wanted in pattern.fields.items())


def value(entry: Entry, name: str) -> Any:
    """Look up a field of an entry; `p` is the process. None where there is none."""
    return entry.p if name == "p" else entry.a.get(name)


def count(quantity: Quantity, entries: Iterable[Entry]) -> int:
    """Count the entries that fit, or the different values of one of their fields."""
    found = [entry for entry in entries if matches(quantity, entry)]
    if quantity.distinct is None:
        return len(found)
    return len({str(value(entry, quantity.distinct)) for entry in found})


def overlap(quantity: Quantity, entries: Sequence[Entry]) -> int:
    """
    Count how many were open at one moment, at most.

    Entries with `began` were open from then to their moment; a request of the upstream is open
    until its response; a claim until the next entry of its job that ends it.
    """
    moments: list[tuple[int, int]] = []
    for entry in entries:
        if matches(quantity, entry):
            begins = entry.a.get("began", entry.t)
            ends = entry.t if "began" in entry.a else _end(entry, entries)
            moments += [(begins, 1), (ends, -1)]
    most = now = 0
    for _, change in sorted(moments, key=lambda moment: (moment[0], -moment[1])):
        now += change
        most = max(most, now)
    return most


def _end(entry: Entry, entries: Sequence[Entry]) -> int:
    name = {"request": "call", "claim": "fence"}.get(entry.e)
    if name is None:
        return entry.t
    for later in entries[entry.i + 1 :]:
        is_of_it = (later.src, later.a.get("job")) == (entry.src, entry.a["job"])
        if is_of_it and later.a.get(name) == entry.a[name] and later.e not in {"renew", "write"}:
            return later.t
    return entries[-1].t


def _fits(wanted: object, seen: Any) -> bool:
    if isinstance(wanted, list):
        return seen in wanted
    comparison = COMPARISON.fullmatch(wanted) if isinstance(wanted, str) else None
    if comparison and isinstance(seen, int | float):
        return _OPERATORS[comparison[1]](seen, float(comparison[2]))
    return bool(seen == wanted)
