r"""
Text and payloads that Postgres can store, whatever they held before.

Postgres refuses NUL in text and `\u0000` in jsonb, and no UTF-8 exists for a lone surrogate.
An error message with one of them must not lose the failure it describes, so each becomes
U+FFFD, the replacement character.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

from reliq.domain.redact import scrub

TEXT_MAX: Final = 4_000
"""Characters of an error text that are kept, and of a result's JSON."""

CLASS_MAX: Final = 200
"""Characters of the name of an error's class."""

_PYTHONS: Final = re.compile(r"[/\\]python3\.\d+[/\\](?!site-packages)|\.pyx$|^<")
_OURS: Final = str(Path(__file__).parents[1])

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_UNSTORABLE_JSON = re.compile("[\ud800-\udfff]|\\\\u0000")
"""The same in encoded JSON, where NUL is an escape; an escaped backslash before it is no harm."""

_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def storable(text: str) -> str:
    """Replace what Postgres cannot store."""
    return _UNSTORABLE.sub("\ufffd", text)


def error_text(error: BaseException | str) -> str:
    """
    Describe an error in one storable text, also one whose `str()` raises.

    An exception reads `TypeName: message`; long texts keep their beginning. What looks like a
    secret is masked: the text goes to a table, a log and an alert.
    """
    if isinstance(error, str):
        text = error
    else:
        try:
            text = f"{type(error).__name__}: {error}"
        except Exception as unreadable:  # noqa: BLE001 - a broken __str__ may raise anything
            text = f"{type(error).__name__}: (its message raised {type(unreadable).__name__})"
    text = scrub(storable(text[: TEXT_MAX * 4]))
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


def error_class(error: BaseException) -> str:
    """Name an error's class, as `httpx.ConnectTimeout`; Python's and reliq's own go without module."""
    kind = type(error)
    is_own = kind.__module__ in {"builtins", "reliq.errors"}
    name = kind.__qualname__ if is_own else f"{kind.__module__}.{kind.__qualname__}"
    return storable(name[:CLASS_MAX])


def is_own(filename: str) -> bool:
    """Tell a file of a team's from what is installed, from Python's, and from ours."""
    is_installed = "site-packages" in filename or filename.startswith(_OURS)
    return not is_installed and not is_pythons(filename)


def is_pythons(filename: str) -> bool:
    """Tell a file of the standard library, or one that was compiled, from all others."""
    return _PYTHONS.search(filename) is not None


def result_json(result: Any) -> str:
    """
    Encode what a handler answered, or else why it is not kept: the work is done all the same.

    A result that is no JSON, or too long, becomes `{"not_kept": "why"}`.
    """
    try:
        text = storable_json(result)
    except ValueError:
        why = f"a result is JSON, and this {type(result).__name__} is not"
    else:
        if len(text) <= TEXT_MAX:
            return text
        why = f"a result has at most {TEXT_MAX} characters of JSON, and this has {len(text)}"
    return storable_json({"not_kept": why})


def storable_json(value: Any, what: str = "the payload") -> str:
    """
    Encode a payload, or `what` else it is, as JSON that jsonb accepts.

    Raises:
        ValueError: it holds something JSON has no word for (a date, NaN, a cycle).

    """
    try:
        text = _encode(value)
        return _encode(_clean(value)) if _UNSTORABLE_JSON.search(text) else text
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{what} is not JSON ({error}): pass ids, texts and plain numbers"
        ) from error


def _clean(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case dict():
            return {_clean(key): _clean(item) for key, item in value.items()}
        case list() | tuple():
            return [_clean(item) for item in value]
        case _:
            return value
