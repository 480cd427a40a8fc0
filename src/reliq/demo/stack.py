"""
A whole reliq on one machine: an embedded Postgres, `reliq serve` and `reliq worker`.

For `reliq dev` and `reliq demo`. The two commands are the shipped ones, as processes of their
own sessions, so that a Ctrl-C reaches only this process, which then ends them in order: the
worker first, the receiver, the database last.
"""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import httpx

from reliq.errors import HarnessError
from reliq.postgres.migrate import migrate
from reliq.servers import PostgresServer, open_server
from reliq.servers.loopback import free_port

RELIQ: Final = os.path.relpath(Path(sys.executable).with_name("reliq"))
"""The command as it can be typed here, also where its environment is not active."""

READY_S: Final = 30.0
"""For a process to say that it is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Where everything is, once it runs."""

    server: PostgresServer
    dsn: str
    receiver: str
    worker_health: str
    logs: Path
    processes: Mapping[str, subprocess.Popen[bytes]]

    def ended(self) -> str | None:
        """Name a process that ended by itself."""
        for name, process in self.processes.items():
            if (code := process.poll()) is not None:
                return f"`reliq {name}` ended with exit code {code}: see {self.logs / name}.log"
        return None


@dataclass(frozen=True, slots=True)
class Place:
    """Where Postgres keeps its data and listens; None for places of the moment."""

    folder: Path | None = None
    port: int | None = None


@asynccontextmanager
async def running(
    folder: Path, *, place: Place, env: Mapping[str, str], port: int | None = None
) -> AsyncIterator[Stack]:
    """
    Start it all, migrate, wait until both processes are ready; end it all in order.

    Logs go to `folder`. `env` holds the settings of the two processes besides the database's address and ports.

    Raises:
        HarnessError: a process did not become ready.

    """
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    async with _server(place) as server:
        dsn = server.dsn()
        await migrate(dsn)
        port, health = port or free_port(), free_port()
        whole = os.environ | env | {  # noqa: TID251 - the command line
            "RELIQ_DATABASE_URL": dsn,
            "RELIQ_PORT": str(port),
            "RELIQ_HEALTH_PORT": str(health),
        }  # fmt: skip
        processes = {name: _start(name, folder, whole) for name in ("serve", "worker")}
        stack = Stack(
            server=server, dsn=dsn, receiver=f"http://127.0.0.1:{port}",
            worker_health=f"http://127.0.0.1:{health}", logs=folder, processes=processes,
        )  # fmt: skip
        try:
            await _await_ready(stack)
            yield stack
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_end, processes)


@asynccontextmanager
async def _server(place: Place) -> AsyncIterator[PostgresServer]:
    opening = open_server("embedded", folder=place.folder, port=place.port)
    server = await anyio.to_thread.run_sync(opening.__enter__)
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(opening.__exit__, None, None, None)


def _start(name: str, folder: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "reliq", name],
            env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


async def _await_ready(stack: Stack) -> None:
    async with httpx.AsyncClient(timeout=5) as client:
        with anyio.move_on_after(READY_S):
            for address in (stack.receiver, stack.worker_health):
                while not await _is_ready(client, address):
                    if (problem := stack.ended()) is not None:
                        raise HarnessError(problem)
                    await anyio.sleep(0.05)
            return
    raise HarnessError(f"not ready after {READY_S:g} s: see {stack.logs}")


async def _is_ready(client: httpx.AsyncClient, address: str) -> bool:
    try:
        return (await client.get(f"{address}/ready")).is_success
    except httpx.HTTPError:
        return False


def _end(processes: Mapping[str, "subprocess.Popen[bytes]"]) -> None:
    """Ask both to stop, insist after a while."""
    for process in processes.values():
        process.send_signal(signal.SIGTERM)
    for process in processes.values():
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
