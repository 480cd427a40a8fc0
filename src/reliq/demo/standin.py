"""A local stand-in for the services the demo calls: the Telegram API, a small CRM, a partner."""

import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import uvicorn
from standardwebhooks import Webhook, WebhookVerificationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from typing_extensions import override

from reliq.domain.signing import SECRET_BYTES, secret_of
from reliq.servers.loopback import HOST, free_port


def _new_secret() -> str:
    return secret_of(secrets.token_bytes(SECRET_BYTES))


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

    The CRM answers 400 to a form without a phone number, else 200; to an order 503 twice, as one
    that is down for a while. The partner answers 200 to what verifies with its secret.
    """

    address: str
    calls: list[Call] = field(default_factory=list)
    partner_secret: str = field(default_factory=_new_secret, repr=False)

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
        if "order" in body:
            return self._answer("order", 503 if len(self.seen("order")) < DOWN else 200, body)
        return self._answer("crm", 200 if "+" in str(body) else 400, body)

    async def partner(self, request: Request) -> JSONResponse:
        """Play the partner, who verifies with a library that is not ours."""
        body = await request.body()
        try:
            event = Webhook(self.partner_secret).verify(body, dict(request.headers))
        except WebhookVerificationError as error:
            return self._answer("partner", 401, str(error))
        return self._answer("partner", 200, event)

    def _answer(self, what: str, status: int, body: Any) -> JSONResponse:
        self.calls.append(Call(what, time.monotonic(), status, body))
        return JSONResponse({"ok": status == 200}, status_code=status)  # noqa: PLR2004


ALERT_CHAT = "-100200300"
DOWN = 2
"""How often the CRM is down for an order."""


@asynccontextmanager
async def stand_in() -> AsyncIterator[StandIn]:
    """Serve it on a loopback port for as long as the block runs."""
    port = free_port()
    played = StandIn(f"http://{HOST}:{port}")
    app = Starlette(
        routes=[
            Route("/bot{token}/sendMessage", played.send_message, methods=["POST"]),
            Route("/crm", played.crm, methods=["POST"]),
            Route("/partner", played.partner, methods=["POST"]),
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
