"""
Is a delivery genuine? Signature schemes as data, and one function that checks them.

A scheme says where the proof stands and how it is made; `verify` compares. It works on bytes
from end to end: the body is hashed as it came, and the received text is compared with the text
we computed, never decoded first, because decoding is where stray bytes turn into exceptions
or into a second spelling of the same signature. So the match is exact: lower-case hex, the
prefix letter by letter, nothing trimmed but spaces and tabs around the header's value.

A verdict is a value. `verify` raises on no bytes whatever; what can be wrong with a scheme or
with its secrets is refused earlier, when the settings are loaded: an empty secret must stop
the service and not open the door.

Other senders' schemes differ by one more word here (a digest, an encoding) or by a further
dataclass in `Scheme` (a signed time, several signatures in one header).
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, assert_never, get_args

from reliq.domain.event import Delivery

Digest = Literal["sha256"]
Encoding = Literal["hex"]

_ENCODINGS: Final[Mapping[str, Callable[[bytes], bytes]]] = {"hex": lambda mac: mac.hex().encode()}

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def _check_header(name: object) -> None:
    if not (isinstance(name, str) and _HEADER_NAME.fullmatch(name)):
        raise ValueError(f"header={name!r}: write a header's name, as 'X-Signature'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hmac:
    """A MAC over the body, keyed with the secret: the header holds prefix and encoded MAC."""

    header: str
    prefix: str = ""
    digest: Digest = "sha256"
    encoding: Encoding = "hex"

    def __post_init__(self) -> None:
        _check_header(self.header)
        if not str(self.prefix).isascii() or self.prefix != str(self.prefix).lstrip():
            raise ValueError(f"prefix={self.prefix!r}: use ASCII without a leading space")
        if self.digest not in get_args(Digest):
            raise ValueError(f"digest={self.digest!r}: use one of {get_args(Digest)}")
        if self.encoding not in get_args(Encoding):
            raise ValueError(f"encoding={self.encoding!r}: use one of {get_args(Encoding)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """The secret itself in a header. It proves the sender, and nothing about the body."""

    header: str

    def __post_init__(self) -> None:
        _check_header(self.header)


Scheme = Hmac | Token

SITE: Final = Hmac(header="X-Signature")
GITHUB: Final = Hmac(header="X-Hub-Signature-256", prefix="sha256=")
TELEGRAM: Final = Token(header="X-Telegram-Bot-Api-Secret-Token")


@dataclass(frozen=True, slots=True)
class Genuine:
    """Made with a secret of ours, the one at this index: an old one may be dropped in time."""

    secret_index: int


Reason = Literal["missing", "repeated", "malformed", "mismatch"]


@dataclass(frozen=True, slots=True)
class Refused:
    """
    Not shown to be genuine. The reason is for the log; the sender gets one answer for all.

    `missing`: the header is absent; `repeated`: it occurs more than once; `malformed`: its
    prefix or length cannot be right; `mismatch`: another secret, or another body.
    """

    reason: Reason


def check_secrets(secrets: Sequence[bytes]) -> tuple[bytes, ...]:
    """
    Return the secrets if every one can guard a door; call it when settings are loaded.

    Raises:
        ValueError: there is none, one is blank, or one ends in a line break, which a file
            brought along and the sender's does not have. Secrets are named by their index.

    """
    if not secrets:
        raise ValueError("no secret: set at least one, or deliveries cannot be verified")
    for index, secret in enumerate(secrets):
        if not secret.strip():
            raise ValueError(f"secret {index} is blank: set it, or take it out of the list")
        if secret.endswith((b"\n", b"\r")):
            raise ValueError(f"secret {index} ends in a line break: remove it")
    return tuple(secrets)


def proof(scheme: Scheme, secret: bytes, body: bytes) -> bytes:
    """Make what a genuine sender writes into the scheme's header."""
    match scheme:
        case Hmac():
            mac = hmac.digest(secret, body, scheme.digest)
            return scheme.prefix.encode() + _ENCODINGS[scheme.encoding](mac)
        case Token():
            return secret
        case _:
            assert_never(scheme)


def verify(scheme: Scheme, secrets: Sequence[bytes], delivery: Delivery) -> Genuine | Refused:
    """
    Compare a delivery's proof with those of all our secrets, in constant time for each.

    Blank secrets never match, should they get here after all.
    """
    values = delivery.values(scheme.header)
    if not values:
        return Refused("missing")
    if len(values) > 1:
        return Refused("repeated")
    match scheme:
        case Hmac():
            return _verify_hmac(scheme, secrets, values[0], delivery.body)
        case Token():
            return _verify_token(secrets, values[0])
        case _:
            assert_never(scheme)


def _verify_hmac(
    scheme: Hmac, secrets: Sequence[bytes], received: bytes, body: bytes
) -> Genuine | Refused:
    prefix, encode = scheme.prefix.encode(), _ENCODINGS[scheme.encoding]
    length = len(prefix) + len(encode(bytes(hashlib.new(scheme.digest).digest_size)))
    # Shape first: hashing a large body for a value that cannot match is work given away.
    if len(received) != length or not received.startswith(prefix):
        return Refused("malformed")
    return _first_match(
        secrets,
        lambda secret: hmac.compare_digest(proof(scheme, secret, body), received),
    )


def _verify_token(secrets: Sequence[bytes], received: bytes) -> Genuine | Refused:
    # Digests have one length, so that the comparison does not tell the secret's.
    seen = hashlib.sha256(received).digest()
    return _first_match(
        secrets,
        lambda secret: hmac.compare_digest(hashlib.sha256(secret).digest(), seen),
    )


def _first_match(secrets: Sequence[bytes], is_match: Callable[[bytes], bool]) -> Genuine | Refused:
    # Every secret is tried, so that the time does not tell which one matched.
    matches = [index for index, secret in enumerate(secrets) if is_match(secret) and secret.strip()]
    return Genuine(matches[0]) if matches else Refused("mismatch")
