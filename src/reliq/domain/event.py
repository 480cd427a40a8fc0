"""What a sender delivers, before and after it is known to be genuine."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reliq.domain.job import EventId

KEY_BYTES_MAX: Final = 512
"""A longer key is replaced by its digest: an index entry of Postgres ends at 2,704 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """
    One HTTP request of a sender, as it came.

    `headers` are raw pairs, names in lower case, in the order sent: a header that occurs
    twice is visible as such. `body` is never decoded before it is verified.
    """

    source: str
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    def values(self, name: str) -> list[bytes]:
        """Return every value of a header as bytes, trimmed of spaces and tabs, in order."""
        wanted = name.lower().encode()
        return [value.strip(b" \t") for key, value in self.headers if key == wanted]

    def header(self, name: str) -> str | None:
        """Return the header's only value as text; None where it is absent or occurs twice."""
        values = self.values(name)
        return values[0].decode("latin-1") if len(values) == 1 else None

    def json(self) -> Any:
        """
        Read the body as JSON in UTF-8, with or without a byte order mark.

        Raises:
            ValueError: it is not; the receiver then stores the event without jobs.

        """
        try:
            return json.loads(self.body.decode("utf-8-sig"))
        except RecursionError as error:
            raise ValueError("the body is nested too deep to be read as JSON") from error


@dataclass(frozen=True, slots=True)
class Stored:
    """The event is new: it and `jobs` jobs were committed together."""

    event_id: EventId
    jobs: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The fact was stored before, as `event_id`."""

    event_id: EventId


def storable_key(key: str) -> str:
    """Keep a key as it is where an index can hold it, else take its full SHA-256."""
    raw = key.encode("utf-8", "surrogatepass")
    if len(raw) <= KEY_BYTES_MAX and b"\0" not in raw and raw.decode("utf-8", "replace") == key:
        return key
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
