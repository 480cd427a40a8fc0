"""Durations as people write them in settings: `90`, `500ms`, `30s`, `5m`, `1h30m`, `35d`."""

import re
from datetime import timedelta
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(text: str) -> timedelta:
    """
    Read a duration; a bare number is seconds.

    Raises:
        ValueError: it is neither a number nor numbers with units.

    """
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return timedelta(seconds=float(text))
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration: write 90, 500ms, 30s, 5m, 1h30m or 35d")
    return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))


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
