"""The proxy as a process of its own: `python -m reliq.scenario.proxy --port 8474 --seed 7`."""

import os
import secrets
import sys
from typing import Annotated

import anyio
import typer
import uvicorn

from reliq.scenario.proxy.api import Api
from reliq.servers.loopback import HOST


async def serve(port: int, seed: int, *, until_eof: bool) -> None:
    """Serve the API until told to stop; then all connections are cut."""
    async with anyio.create_task_group() as tasks:
        app = Api(tasks, seed).app()
        config = uvicorn.Config(app, host=HOST, port=port, log_level="warning", ws="none")
        server = uvicorn.Server(config)
        if until_eof:
            tasks.start_soon(_stop_at_eof, server)
        await server.serve()
        tasks.cancel_scope.cancel()


async def _stop_at_eof(server: uvicorn.Server) -> None:
    """Stop when nobody holds our standard input any more: who started us is gone."""
    place = sys.stdin.fileno()
    while True:
        await anyio.wait_readable(place)
        if not os.read(place, 4096):
            server.should_exit = True
            return


def main(
    port: Annotated[int, typer.Option(help="Where the HTTP API listens, on loopback only.")] = 8474,
    seed: Annotated[
        int | None, typer.Option(help="Of all dice; random where none is given.")
    ] = None,
    *,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="End with whoever holds the standard input.")
    ] = False,
) -> None:
    """Hurt TCP connections on request."""
    rolls = secrets.randbits(32) if seed is None else seed
    anyio.run(lambda: serve(port, rolls, until_eof=until_eof))


if __name__ == "__main__":
    typer.run(main)
