"""
Reports: how far one is, and links to it that say until when they are good.

A link is the report's number, the moment it expires (whole seconds since 1970) and a signature
over both: `…/reports/7?expires=1796000000&signature=…`. Whoever has it may fetch the report and
see its progress until then, and nobody else learns even whether there is such a report.
"""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

ReportState = Literal["running", "ready", "failed"]

ID_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """
    How far a report is, at the moment `now` of the database's clock.

    `done` of `total` chunks are there, with `rows` rows; `total` is None until it has begun. `dead`
    chunks wait for a person. `file` is the address of a report that was put elsewhere.
    """

    name: str
    state: ReportState
    done: int
    total: int | None
    rows: int
    dead: int
    reason: str | None
    file: str | None
    now: datetime


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a report's content, and its place: `rows` whole lines."""

    chunk: int
    part: int
    rows: int
    content: str


def report_signature(secret: bytes, report_id: int, expires: int) -> str:
    """Sign what a link says, in lower-case hex."""
    said = f"report:{report_id}:{expires}".encode()
    return hmac.new(secret, said, hashlib.sha256).hexdigest()


def report_link(base: str, secret: bytes, report_id: int, expires_at: datetime) -> str:
    """
    Make the link to a report, good until `expires_at`; `base` is the receiver's public address.

    `/progress` behind the number, before the question mark, is the address of its progress.
    """
    expires = int(expires_at.timestamp())
    signature = report_signature(secret, report_id, expires)
    return f"{base.rstrip('/')}/reports/{report_id}?expires={expires}&signature={signature}"


def expiry_of(secret: bytes, report_id: str, expires: str, signature: str) -> int | None:
    """
    Return when a link expires, in seconds since 1970; None if we did not make it.

    Compares in constant time. A number has one way to be written, so that a link has, too.
    """
    numbers = _number(report_id), _number(expires)
    if None in numbers:
        return None
    ours = report_signature(secret, int(report_id), int(expires))
    is_same = hmac.compare_digest(ours.encode(), signature.encode("utf-8", "replace"))
    return int(expires) if is_same else None


def _number(text: str) -> int | None:
    is_plain = text.isascii() and text.isdecimal() and len(text) <= len(str(ID_MAX))
    return int(text) if is_plain and text == str(int(text)) and int(text) <= ID_MAX else None
