"""
HTTP in front of the intake: addresses, limits and status codes, nothing of the business.

The order is fixed: source (404), size, as announced and as it comes (413), time (408), encoding
(415, for what is signed are the bytes sent), then the intake: proof (401) and store (503). A
sender may be told all of that, but never why a proof was wrong.
"""

import secrets as dice
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, assert_never

import anyio
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from reliq.app import App
from reliq.domain.event import Delivery, Duplicate, Stored
from reliq.domain.signature import Refused
from reliq.ports import Inbox
from reliq.receiver.accept import Answer, Away, Intake

BODY_TIMEOUT: Final = timedelta(seconds=10)
"""For all of a body: a slow sender must not hold a place for ever."""

DISCARD_BYTES: Final = 32 * 1024 * 1024
"""Read off a body that is too large before answering: a sender that is still writing when we
close would see a reset connection and never the 413."""

RETRY_AFTER_S: Final = (3, 30)
"""Chosen anew for every 503, so that senders do not all come back at one moment."""

CLOSE: Final = {"connection": "close"}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A delivery that does not reach the intake."""

    status: int
    error: str


TOO_LARGE: Final = Refusal(status=413, error="the body is too large")
TOO_SLOW: Final = Refusal(status=408, error="the body did not come in time")
CUT_OFF: Final = Refusal(status=400, error="the body is incomplete")
ENCODED: Final = Refusal(status=415, error="send the body without a content encoding")


def make_asgi(
    app: App,
    *,
    secrets: Mapping[str, Sequence[bytes]],
    inbox: Inbox,
    body_max: int,
    bell: Callable[[], None] = lambda: None,
    body_timeout: timedelta = BODY_TIMEOUT,
    more: Sequence[Route] = (),
) -> Starlette:
    """
    Make the receiver's ASGI application: /health, /ready, /hooks/{source}, and `more`.

    `secrets` has one or more for each source of the App, `body_max` is in bytes, for sources
    without a limit of their own; `bell` is called after each commit with jobs.

    Raises:
        ConfigInvalid: a source has no usable secret.

    """
    intake = Intake.of(app, secrets=secrets, inbox=inbox, body_max=body_max, bell=bell)

    async def health(_: Request) -> Response:
        return JSONResponse({"alive": True})

    async def ready(_: Request) -> Response:
        reason = await inbox.why_not_ready()
        if reason is None:
            return JSONResponse({"ready": True})
        return JSONResponse({"ready": False, "reason": reason}, status_code=503)

    async def hook(request: Request) -> Response:
        source = request.path_params["source"]
        try:
            return await _receive(intake, source, request, body_timeout)
        except Exception as error:  # noqa: BLE001 - a bug is ours; its message may quote the body
            log.error(  # noqa: TRY400 - an exception's text would go along
                "delivery.failed", source=source, error=type(error).__name__,
                trace="".join(traceback.format_tb(error.__traceback__)),
            )  # fmt: skip
            return _error(500, "internal error")

    asgi = Starlette(
        routes=[
            Route("/health", health),
            Route("/ready", ready),
            Route("/hooks/{source}", hook, methods=["POST"]),
            *more,
        ],
        exception_handlers={HTTPException: _unrouted},
    )
    # A redirect would make most senders give up, or repeat the delivery without its body.
    asgi.router.redirect_slashes = False
    return asgi


async def _receive(intake: Intake, source: str, request: Request, within: timedelta) -> Response:
    limit = intake.limit(source)
    if limit is None:
        log.warning("delivery.refused", source=source[:100], status=404, reason="unknown source")
        return _error(404, "not found")
    body = await _body(request, limit, within)
    if isinstance(body, Refusal):
        log.warning("delivery.refused", source=source, status=body.status, reason=body.error)
        headers = None if body is ENCODED else CLOSE
        return _error(body.status, body.error, headers=headers)
    pairs = [(name.lower(), value) for name, value in request.scope["headers"]]
    return _answered(await intake.accept(Delivery(source=source, headers=pairs, body=body)))


async def _body(request: Request, limit: int, within: timedelta) -> bytes | Refusal:
    """Read a body of at most `limit` bytes; never more than that is held."""
    announced = request.headers.get("content-length", "0")
    is_too_large = announced.isdecimal() and int(announced) > limit
    if is_too_large and "expect" in request.headers:
        return TOO_LARGE  # this sender asked for leave before sending, and need not begin
    body, size = bytearray(), 0
    try:
        with anyio.move_on_after(within.total_seconds()) as scope:
            async for chunk in request.stream():
                size += len(chunk)
                if is_too_large or size > limit:
                    is_too_large = True
                    body.clear()
                    if size > limit + DISCARD_BYTES:
                        break
                else:
                    body += chunk
    except ClientDisconnect:
        return CUT_OFF
    if is_too_large:
        return TOO_LARGE
    if scope.cancelled_caught:
        return TOO_SLOW
    encodings = request.headers.getlist("content-encoding")
    is_plain = all(word.strip().lower() == "identity" for word in encodings)
    return bytes(body) if is_plain else ENCODED


def _answered(answer: Answer) -> Response:
    match answer:
        case Stored(event_id, jobs):
            return JSONResponse({"id": event_id, "jobs": jobs}, status_code=202)
        case Duplicate(event_id):
            known = {"id": event_id, "jobs": 0, "duplicate": True}
            return JSONResponse(known, status_code=202)
        case Refused():
            return _error(401, "unauthorized")
        case Away():
            first, last = RETRY_AFTER_S
            pause = first + dice.randbelow(last - first + 1)
            headers = {"retry-after": str(pause)}
            return _error(503, "not stored, come again", headers=headers)
        case _:
            assert_never(answer)


def _error(status: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": error}, status_code=status, headers=headers)


async def _unrouted(_: Request, error: Exception) -> Response:
    """Answer what no route takes: 404, or 405 with the methods that are allowed."""
    if not isinstance(error, HTTPException):
        raise error
    return _error(error.status_code, error.detail.lower(), headers=error.headers)
