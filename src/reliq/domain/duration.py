"""Durations as people write them in settings: `90`, `500ms`, `30s`, `5m`, `1h30m`, `35d`."""

import re
from datetime import timedelta
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_NUMBER: Final = re.compile(r"\d+(\.\d+)?", re.ASCII)

LONGEST: Final = timedelta(days=36_500)
"""A hundred years: what is longer is a slip, and beyond the clocks of databases."""


def parse_duration(text: str) -> timedelta:
    """
    Read a duration; a bare number is seconds.

    Raises:
        ValueError: it is neither a number nor numbers with units, or exceeds a hundred years.

    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        text += "s"
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration: write 90, 500ms, 30s, 5m, 1h30m or 35d")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > LONGEST.total_seconds():
        raise ValueError(f"{text!r} is longer than a hundred years")
    return timedelta(seconds=seconds)


def format_duration(value: timedelta) -> str:
    """Write a duration in its largest whole units: `1h30m`, `500ms`, `0s`."""
    left = round(value.total_seconds() * 1000)
    if left < 0:
        return f"-{format_duration(-value)}"
    words = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, round(_UNITS[unit] * 1000))
        if count:
            words.append(f"{count}{unit}")
    return "".join(words) or "0s"
