"""
What a sealed field looks like in a stored payload, and how to find it; no cryptography.

`{"iban": {"$sealed": "2026b:gAAAA…"}}`: the value of a named field, encrypted as JSON, behind the
id of its key. A value that looks like that by itself is sealed, too, whatever its name: what comes
out is always what went in.
"""

import base64
import json
import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from itertools import accumulate
from typing import Any, Final, Protocol

SEALED: Final = "$sealed"
MARK: Final = f'"{SEALED}":'
"""Part of the JSON of every payload with a sealed value; of a text in a payload it never is."""

KEY_BYTES: Final = 32

DEPTH_MAX: Final = 400
"""Of a payload with keys: what is written within it can be read, also deep in somebody's calls."""

_ID: Final = re.compile(r"[\w.-]{1,40}", re.ASCII)
_TEXT: Final = re.compile(rf"({_ID.pattern}):(gAAAA[\w-]+={{0,2}})", re.ASCII)
_VALUE: Final = re.compile(rf'\{{"\{SEALED}": ?"{_TEXT.pattern}"\}}', re.ASCII)
_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])')

NOTHING: Final = object()
"""The answer of a change that leaves a field as it is."""

Change = Callable[[object, Any], Any]
"""From the name of a field (or its place in a list) and its value to another value, or NOTHING."""


class Sealer(Protocol):
    """Whatever seals payloads on their way to the tables."""

    def seal(self, payload_json: str) -> str:
        """Return the payload with its named fields sealed."""
        ...


def read_keys(text: str) -> dict[str, str]:
    """
    Read `2026b:<key>,2026a:<key>` into keys by id, in their order; the first is used to seal.

    Raises:
        ValueError: it is written wrong; the message quotes no key.

    """
    keys: dict[str, str] = {}
    for place, item in enumerate(text.split(","), 1):
        name, colon, key = item.strip().partition(":")
        if not (colon and _ID.fullmatch(name)):
            raise ValueError(
                f"key {place} has no id: write 2026b:<key>,2026a:<key>, newest first, "
                "ids of letters, digits, dots and dashes"
            )
        if name in keys:
            raise ValueError(f"two keys have the id {name}")
        if not _is_key(key):
            raise ValueError(
                f"the key {name} is no Fernet key, {KEY_BYTES} bytes in URL-safe base64: make one with "
                'python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"'
            )
        keys[name] = key
    return keys


def _is_key(text: str) -> bool:
    try:
        return (
            len(base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)) == KEY_BYTES
        )
    except ValueError:
        return False


def check_depth(payload_json: str) -> None:
    """
    Refuse what might be written and not read again: Python nests JSON as deep as its calls allow.

    Raises:
        ValueError: lists and objects are nested deeper than DEPTH_MAX.

    """
    if payload_json.count("[") + payload_json.count("{") > DEPTH_MAX:
        steps = (bool(found[1]) - bool(found[2]) for found in _BRACKETS.finditer(payload_json))
        if (depth := max(accumulate(steps))) > DEPTH_MAX:
            raise ValueError(
                f"with keys a payload is nested at most {DEPTH_MAX} deep, not {depth}: "
                "pass ids, texts and plain numbers"
            )


def is_sealed(payload_json: str) -> bool:
    """Tell whether a stored payload holds a sealed value, by its text: it may be of any depth."""
    return _VALUE.search(payload_json) is not None


def changed(payload_json: str, change: Change) -> Any:
    """
    Read a payload and change fields of it, from the top down; a new value is not looked into.

    Without recursion, because the depth of a payload is its sender's choice.
    """
    payload = json.loads(payload_json)
    nodes: list[Any] = [payload]
    while nodes:
        node = nodes.pop()
        for name, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            new = change(name, value)
            if new is not NOTHING:
                node[name] = new
            elif isinstance(value, dict | list):
                nodes.append(value)
    return payload


def is_to_be_sealed(name: object, value: Any, fields: AbstractSet[str]) -> bool:
    """Tell by its name, or by its look; null says nothing that is worth it."""
    return (name in fields and value is not None) or (isinstance(value, dict) and SEALED in value)


def token_of(value: Any) -> tuple[str, str] | None:
    """Return the id and the ciphertext of a sealed value; None where it is none."""
    match value:
        case {"$sealed": str(text)} if len(value) == 1 and (found := _TEXT.fullmatch(text)):
            return found[1], found[2]
        case _:
            return None


def pattern(key_id: str, fields: AbstractSet[str]) -> str:
    """
    Write a regular expression for Postgres: it finds the JSON of payloads that are to be sealed anew.

    Those name another key than `key_id`, or hold a named field in clear. Of jsonb's own text form,
    where a quote within a text has a backslash before it. It may find too much.
    """
    current = rf'"\{SEALED}": "{re.escape(key_id)}:'
    names = "|".join(re.escape(json.dumps(name, ensure_ascii=False)) for name in sorted(fields))
    in_clear = rf"|(?:{names}): (?!\{{{current}|null)" if names else ""
    return rf'"\{SEALED}": (?!"{re.escape(key_id)}:){in_clear}'
