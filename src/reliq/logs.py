"""
One line per fact: coloured text on a terminal, JSON elsewhere.

Every event name is listed here; a test compares the list with the code. `info` is the life of
processes and one line per attempt, `warning` what mended itself, `error` what needs a person.
Never a payload, never a secret.
"""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Final, Literal

import structlog

EVENTS: Final = frozenset(
    {
        # receiver
        "delivery.accepted", "delivery.duplicate", "delivery.refused", "delivery.unreadable",
        "delivery.not_stored", "delivery.failed", "receiver.started", "receiver.not_ready", "receiver.stopped",
        # worker
        "worker.started", "worker.draining", "worker.stopped", "worker.grace_over",
        "attempt.ended", "attempt.abandoned", "attempt.raised_after_commit", "attempt.result_after_commit",
        "attempt.no_outcome",
        "lease.lost", "leases.not_renewed", "jobs.handed_back", "job.reaped",
        "job.buried", "alert.died", "settle.delayed", "settle.refused", "suspect.isolated", "suspect.not_isolated", "kinds.unknown",
        "database.away", "database.back", "database.budget_spent", "wakeup.lost", "slot.enqueued", "rows.pruned",
        "groups.advanced", "breaker.open", "family.ended",

        # automations
        "drill.started", "drill.going", "drill.ended", "drill.point", "drill.effect", "drill.placed",
        "form.received", "github.received", "heartbeat.beat", "alert.not_sent",
        "mail.sent", "mail.repeated",
        "alarms.told", "watch.not_pinged",
        "report.ended", "report.refused", "endpoint.not_noted",
    }
)  # fmt: skip

_TIME: Final = structlog.processors.TimeStamper(fmt="iso", utc=True)
_encode: Final = json.JSONEncoder(default=repr).encode
_ENCODERS: Final[dict[type, Callable[[Any], str]]] = {
    str: encode_basestring_ascii, int: int.__repr__, float: float.__repr__,
}  # fmt: skip
"""Of the types that nearly all values have; the encoder for everything takes ten times as long."""

log = structlog.get_logger()


def info_each(event: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """
    Write an info line for each of `rows`, all of them in one go.

    What a line costs by itself is more than a small job does: as JSON, lines of one batch share
    their time and their write. A value that is None is left out.
    """
    config = structlog.get_config()
    if not isinstance(config["processors"][-1], structlog.processors.JSONRenderer):
        for row in rows:
            told = {n: value for n, value in zip(names, row, strict=True) if value is not None}
            log.info(event, **told)
        return
    words, encoder = [f'"{name}": ' for name in names], _ENCODERS.get
    end = _encode(_TIME(None, "info", {"event": event, "level": "info"}))[1:]
    lines = [
        "{"
        + ", ".join(
            [
                word + encoder(type(value), _encode)(value)
                for word, value in zip(words, row, strict=True)
                if value is not None
            ]
        )
        + ", "
        + end
        for row in rows
    ]
    config["logger_factory"]().msg("\n".join(lines))


def configure(style: Literal["auto", "json", "text"]) -> None:
    """Set structlog up once, for the process; standard-library loggers keep to warnings."""
    text = style == "text" or (style == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if text
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _TIME,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # A line and its end in one go: processes of isolated handlers write to the same place.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    # httpx logs whole addresses at INFO, and a Telegram address holds the bot's token.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)
