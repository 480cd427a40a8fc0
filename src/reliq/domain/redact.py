"""
What may be shown of a payload, a header or an error text.

A person who looks at a job needs its shape and its ids, and never a password. What is masked
is decided by the name a value goes by (`api_key`, `accessToken`, `Authorization`), and in free
text also by its look (`Bearer …`, `user:password@`, a Telegram bot's token). It masks too
much rather than too little. Error texts are masked before they are stored; bodies stay as
they came, payloads too, unless they are sealed (`sealed.py`), and both are masked on screens.
"""

import json
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final
from urllib.parse import quote, quote_plus

MASK: Final = "********"

SHORT: Final = 4
PIECE: Final = 12

_CUT: Final = re.compile(r"\.\.\.|…")

_SECRETIVE: Final = (
    "password", "passwd", "passphrase", "pwd", "secret", "token", "authorization", "apikey",
    "accesskey", "privatekey", "credential", "cookie", "sessionid", "signature",
)  # fmt: skip
_LETTERS: Final = re.compile(r"[^a-z]")

_WORDS: Final = (
    r"password|passwd|passphrase|pwd|secret|token|authorization|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|credentials?|cookie|session[_-]?id|signature"
)
# No part may run on without a bound before it must match: bodies can be a megabyte of one letter.
_NAMED: Final = re.compile(
    rf"""(?P<name>(?:{_WORDS})[\w.-]{{0,40}}\\{{0,3}}["']?\s{{0,9}}[:=]\s{{0,9}})"""
    r"""(?P<value>\\{1,3}(?P<q>["'])(?:(?!\\{1,3}(?P=q)).)*"""
    r"""|[bru]{0,2}"(?:[^"\\]|\\.)*"?|[bru]{0,2}'(?:[^'\\]|\\.)*'?"""
    r"""|(?:(?:Bearer|Basic|Digest|Token)\s+)?[^\s,;&"'<>}\]]+)""",
    re.IGNORECASE,
)
_LOOKS: Final = (
    (re.compile(r"(\bcookie:\s{0,9})[^\n\"']+", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(r"\b(Bearer|Basic)\s+[\w+/=.~-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"(\w://)[^\s/@]*@"), rf"\1{MASK}@"),
    (re.compile(r"(?<!\d)\d{6,}:[\w-]{30,}"), MASK),  # of a Telegram bot
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), MASK),  # a JSON web token
)


def redact(value: Any, secrets: AbstractSet[str] = frozenset()) -> Any:
    """Copy JSON with what a secretive name, or one of `secrets`, holds masked, texts scrubbed."""
    match value:
        case dict():
            return {
                key: MASK
                if (key in secrets and item is not None)
                or (is_secretive(str(key)) and _holds(item))
                else redact(item, secrets)
                for key, item in value.items()
            }
        case list():
            return [redact(item, secrets) for item in value]
        case str():
            return scrub(value)
        case _:
            return value


def hide(text: str, payload_json: str, secrets: AbstractSet[str]) -> str:
    """
    Mask in a text what the fields named `secrets` of a payload hold, as it is, quoted or escaped.

    What has fewer than four characters is masked as a whole word only: it is part of too many.
    Of longer ones pieces are masked as well, for many an error cuts what it quotes: any twelve
    characters in a row, and four where an ellipsis is. The time is linear in text and payload.
    """
    try:
        held = set(_held(json.loads(payload_json), secrets, within=False)) if secrets else set()
    except (ValueError, RecursionError):  # a handler has never seen it
        return text
    forms = {form for value in held for form in _forms(value)}
    for form in sorted(forms, key=len, reverse=True):
        if len(form) >= SHORT:
            text = text.replace(form, MASK)
        else:
            text = re.sub(rf"\b{re.escape(form)}\b", MASK, text)
    hidden = _pieces(text, forms) if forms else ()
    return re.sub("\0+", MASK, "".join("\0" if n in hidden else c for n, c in enumerate(text)))


def _pieces(text: str, forms: AbstractSet[str]) -> set[int]:
    """Find the places of a text that are part of a piece of a secret."""
    starts, sizes = range(len(text) - PIECE + 1), range(SHORT, PIECE)
    shown, runs = {text[n : n + PIECE] for n in starts}, set[str]()
    for form in forms:
        runs |= shown.intersection(form[n : n + PIECE] for n in range(len(form) - PIECE + 1))
    spans = [(n, n + PIECE) for n in starts if text[n : n + PIECE] in runs]
    ends = {end for form in forms for n in sizes for end in (form[:n], form[-n:])}
    for cut in _CUT.finditer(text):
        before, behind = cut.span()
        beside = [span for n in sizes for span in ((before - n, before), (behind, behind + n))]
        spans += [(a, b) for a, b in beside if a >= 0 and text[a:b] in ends]
    return {n for span in spans for n in range(*span)}


def _held(value: Any, secrets: AbstractSet[str], *, within: bool) -> Iterator[str]:
    match value:
        case dict():
            for key, item in value.items():
                yield from _held(item, secrets, within=within or key in secrets)
        case list():
            for item in value:
                yield from _held(item, secrets, within=within)
        case str() | int() | float() if (
            within and not isinstance(value, bool) and str(value).strip()
        ):
            yield str(value)
        case _:
            pass


def _forms(value: str) -> tuple[str, ...]:
    return (
        value,
        *(escaped(value)[1:-1] for escaped in (repr, ascii, json.dumps)),
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value.encode(errors="surrogatepass"))[2:-1],
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
    )


def redact_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Do the same for stored headers."""
    return {
        name: MASK if is_secretive(name) else printable(scrub(value))
        for name, value in headers.items()
    }


def is_secretive(name: str) -> bool:
    """Tell by a field's name whether to mask it; case and separators do not matter."""
    letters = _LETTERS.sub("", name.lower())
    return any(word in letters for word in _SECRETIVE)


def _holds(value: object) -> bool:
    return value is not None and not isinstance(value, bool)


def scrub(text: str) -> str:
    """Mask what follows a secretive name in free text, and what looks like a secret."""
    text = _NAMED.sub(lambda found: found["name"] + _mask_like(found["value"]), text)
    for pattern, instead in _LOOKS:
        text = pattern.sub(instead, text)
    return text


def _mask_like(value: str) -> str:
    quote = value[0] if value[0] in "\"'" else ""
    return f"{quote}{MASK}{quote}"


def printable(text: str) -> str:
    """Spell out control characters, so that text from outside cannot steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else _spelt(c) for c in text)


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode()


def preview(
    body: bytes, characters_max: int, secrets: AbstractSet[str] = frozenset()
) -> tuple[str, str]:
    """
    Show a body as (`json`, `text` or `hex`, what to show), at most so many characters.

    Masking comes before cutting: a secret that lies across the cut is masked, too.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "hex", _cut(body[:characters_max].hex(" "), characters_max)
    try:
        shown = json.dumps(redact(json.loads(text), secrets), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return "text", _cut(printable(scrub(text)), characters_max)
    return "json", _cut(printable(shown), characters_max)


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"
