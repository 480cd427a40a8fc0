"""
Reports over HTTP: `/reports/{number}` and `/reports/{number}/progress`, for who has a link.

| answer | when                                                                      |
|--------|---------------------------------------------------------------------------|
| 200    | the report as CSV, part by part; its progress as JSON                     |
| 303    | it was put elsewhere                                                      |
| 404    | no such report, or a link that we did not make: nobody learns which       |
| 409    | it is not ready yet (with Retry-After), or it failed                      |
| 410    | the link has expired                                                      |
| 503    | the database is away (with Retry-After)                                   |

Parts are read as the client takes them, one at a time: memory stays flat, and a client that goes
away, or reads slowly, holds no connection.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from reliq.domain.report import Progress, expiry_of
from reliq.errors import StoreError
from reliq.ports import Reports

RETRY_AFTER_S: Final = 5
"""For who asks too early."""

PRIVATE: Final = {
    "cache-control": "private, no-store",
    "referrer-policy": "no-referrer",  # or the next page is told the link
    "x-content-type-options": "nosniff",
}
COME_AGAIN: Final = {**PRIVATE, "retry-after": str(RETRY_AFTER_S)}

log = structlog.get_logger()


def report_routes(reports: Reports, secret: bytes) -> Sequence[Route]:
    """Make the routes; `secret` is what links are signed with."""

    async def download(request: Request) -> Response:
        found = await _asked(reports, secret, request)
        if isinstance(found, Response):
            return found
        if found.state != "ready":
            return _not_ready(found)
        if found.file is not None:
            return RedirectResponse(found.file, status_code=303, headers=PRIVATE)
        number = int(request.path_params["number"])
        name = f"{found.name}-{number}.csv"
        headers = {**PRIVATE, "content-disposition": f'attachment; filename="{name}"'}
        if request.method == "HEAD":
            return Response(media_type="text/csv", headers=headers)
        content = _content(reports, number, found.rows)
        return StreamingResponse(content, media_type="text/csv", headers=headers)

    async def progress(request: Request) -> Response:
        found = await _asked(reports, secret, request)
        return found if isinstance(found, Response) else JSONResponse(_told(found), headers=PRIVATE)

    return [
        Route("/reports/{number}", download, methods=["GET"]),
        Route("/reports/{number}/progress", progress, methods=["GET"]),
    ]


async def _asked(reports: Reports, secret: bytes, request: Request) -> Progress | Response:
    """Find the report that a link is for; the link is looked at before the tables are."""
    number, asked = request.path_params["number"], request.query_params
    expires = expiry_of(secret, number, asked.get("expires", ""), asked.get("signature", ""))
    if expires is None:
        log.warning("report.refused", report=number[:20], reason="no link of ours")
        return _error(404, "not found")
    try:
        found = await reports.find(int(number))
    except StoreError as error:
        log.warning("report.refused", report=int(number), reason=str(error))
        return _error(503, "come again", headers=COME_AGAIN)
    if found is None:
        return _error(404, "not found")
    if found.now.timestamp() >= expires:
        return _error(410, "the link has expired")
    return found


def _told(found: Progress) -> dict[str, Any]:
    told = {"state": found.state, "done": found.done, "total": found.total, "rows": found.rows}
    told |= {"dead": found.dead} if found.dead else {}
    return told | ({"reason": found.reason} if found.reason else {})


def _not_ready(found: Progress) -> Response:
    if found.state == "failed":
        return JSONResponse({"error": "the report failed", **_told(found)}, 409, PRIVATE)
    return JSONResponse({"error": "not ready", **_told(found)}, 409, COME_AGAIN)


async def _content(reports: Reports, number: int, rows: int) -> AsyncIterator[bytes]:
    """
    Yield the parts; a report that was pruned under the reader ends in an error.

    The answer is then cut off, and the client sees that it is not whole.
    """
    async for part in reports.parts(number):
        rows -= part.rows
        yield part.content.encode()
    if rows:
        raise StoreError(f"report {number} lacks {rows} rows: it was pruned while it was read")


def _error(status: int, error: str, *, headers: dict[str, str] = PRIVATE) -> Response:
    return JSONResponse({"error": error}, status_code=status, headers=headers)
