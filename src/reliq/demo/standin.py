"""A local stand-in for the services the demo calls: the Telegram API, and a small CRM."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from typing_extensions import override

from reliq.servers.loopback import HOST, free_port


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the far end saw it."""

    what: str
    at_s: float
    status: int
    body: Any


@dataclass(slots=True)
class StandIn:
    """
    Answers `sendMessage` with 502 the first time and 200 after that.

    The CRM answers 400 to a form without a phone number, else 200.
    """

    address: str
    calls: list[Call] = field(default_factory=list)

    def seen(self, what: str) -> list[Call]:
        """List the calls of one sort, in order."""
        return [call for call in self.calls if call.what == what]

    async def send_message(self, request: Request) -> JSONResponse:
        """Play the Telegram API."""
        body = await request.json()
        alert = body.get("chat_id") == ALERT_CHAT
        status = 200 if alert or self.seen("message") else 502
        return self._answer("alert" if alert else "message", status, body)

    async def crm(self, request: Request) -> JSONResponse:
        """Play the CRM."""
        body = await request.json()
        return self._answer("crm", 200 if "+" in str(body) else 400, body)

    def _answer(self, what: str, status: int, body: Any) -> JSONResponse:
        self.calls.append(Call(what, time.monotonic(), status, body))
        return JSONResponse({"ok": status == 200}, status_code=status)  # noqa: PLR2004


ALERT_CHAT = "-100200300"


@asynccontextmanager
async def stand_in() -> AsyncIterator[StandIn]:
    """Serve it on a loopback port for as long as the block runs."""
    port = free_port()
    played = StandIn(f"http://{HOST}:{port}")
    app = Starlette(
        routes=[
            Route("/bot{token}/sendMessage", played.send_message, methods=["POST"]),
            Route("/crm", played.crm, methods=["POST"]),
        ]
    )
    server = _Quiet(uvicorn.Config(app, host=HOST, port=port, log_level="error", lifespan="off"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        while not server.started:
            await anyio.sleep(0.01)
        try:
            yield played
        finally:
            server.should_exit = True


class _Quiet(uvicorn.Server):
    """A server that leaves the signals to the command it is part of."""

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        yield
