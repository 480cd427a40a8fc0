"""`/health` and `/ready` of a worker, answered by the second loop."""

import socket

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from reliq.worker.availability import Availability


async def serve_health(
    place: socket.socket, availability: Availability, stopping: anyio.Event
) -> None:
    """Answer until cancelled: alive; ready while the database answers and no stop was asked for."""

    async def health(_: Request) -> JSONResponse:
        return JSONResponse({"alive": True})

    async def ready(_: Request) -> JSONResponse:
        reason = "the worker is stopping" if stopping.is_set() else availability.reason
        if reason is None:
            return JSONResponse({"ready": True})
        return JSONResponse({"ready": False, "reason": reason}, status_code=503)

    app = Starlette(routes=[Route("/health", health), Route("/ready", ready)])
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    await uvicorn.Server(config).serve(sockets=[place])
