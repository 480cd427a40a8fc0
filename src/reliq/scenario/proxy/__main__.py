"""The proxy as a process of its own: `python -m reliq.scenario.proxy --port 8474 --seed 7`."""

import secrets
from typing import Annotated

import anyio
import typer
import uvicorn

from reliq.scenario.proxy.api import Api
from reliq.servers.loopback import HOST


async def serve(port: int, seed: int) -> None:
    """Serve the API until told to stop; then all connections are cut."""
    async with anyio.create_task_group() as tasks:
        app = Api(tasks, seed).app()
        config = uvicorn.Config(app, host=HOST, port=port, log_level="warning", ws="none")
        await uvicorn.Server(config).serve()
        tasks.cancel_scope.cancel()


def main(
    port: Annotated[int, typer.Option(help="Where the HTTP API listens, on loopback only.")] = 8474,
    seed: Annotated[
        int | None, typer.Option(help="Of all dice; random where none is given.")
    ] = None,
) -> None:
    """Hurt TCP connections on request."""
    anyio.run(serve, port, secrets.randbits(32) if seed is None else seed)


if __name__ == "__main__":
    typer.run(main)
