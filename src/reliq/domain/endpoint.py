"""Somebody else's address that events are sent to, and what is known of it."""

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

QUEUE: Final = "webhook:{}"
"""The queue of one endpoint, so that limits, breaker and pause are its own."""

FAILING_FOR: Final = timedelta(days=5)
FAILURES_MIN: Final = 5
"""An endpoint of which every attempt failed for so long, and so many, is disabled."""

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """
    Where to send to, and how to sign, at this moment.

    `secrets` sign, the newest first; of a rotation the old one is among them for a day. `now` is the
    database's time, and `enqueued_at` when the job was, or the first of those it was made anew from.
    `disabled_why` is None while it is enabled.
    """

    name: str
    url: str
    secrets: tuple[str, ...] = field(repr=False)
    disabled_why: str | None
    now: datetime
    enqueued_at: datetime


def check_name(name: str) -> str:
    """
    Return a name if it can be an endpoint's.

    Raises:
        ValueError: it cannot.

    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            "the name of an endpoint is 1 to 63 lower-case letters, digits, dots, dashes and "
            f"underscores, not {name[:80]!r}"
        )
    return name


def queue_of(name: str) -> str:
    """Name the queue of an endpoint."""
    return QUEUE.format(name)
