"""`reliq dev`: a reliq of one's own, that a person can hurt by hand."""

import hmac
import os
import secrets
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from dotenv import dotenv_values
from rich.console import Console

from reliq.app import App
from reliq.demo.stack import RELIQ, Place, Stack, running
from reliq.servers import PostgresServer
from reliq.servers.loopback import free_port
from reliq.settings import environment
from reliq.wiring.loading import configured
from reliq.wiring.sockets import listening

FOLDER: Final = Path(".reliq")

ENV: Final = FOLDER / "dev.env"
"""The settings of the bundled App that nobody gave, and the database: the same at every run."""


async def dev(port: int) -> int:
    """
    Run it until cancelled; return 1 when a part of it ended by itself.

    Raises:
        ConfigInvalid: the settings or the App are wrong, or the port is taken.

    """
    listening("127.0.0.1", port, "--port").close()
    made = _made_up()
    given = {name: value for name, (value, _) in environment().items()}
    env = made | given | {"RELIQ_DATABASE_URL": made["RELIQ_DATABASE_URL"]}
    os.environ.update(env)  # noqa: TID251 - the command's own settings, to be checked first
    _, app = configured()
    console = Console(highlight=False, soft_wrap=True)
    place = Place(FOLDER / "postgres", urlsplit(env["RELIQ_DATABASE_URL"]).port)
    async with running(FOLDER, place=place, env=env, port=port) as stack:
        _introduce(console, stack, app, env)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_heed_toggle, console, stack.server)
            while (problem := stack.ended()) is None:
                await anyio.sleep(0.5)
            tasks.cancel_scope.cancel()
        console.print(f"[red]{problem}[/red]")
        return 1


def _introduce(console: Console, stack: Stack, app: App, env: Mapping[str, str]) -> None:
    console.print(f"receiver   {stack.receiver}/hooks/…")
    console.print(f"database   {stack.dsn}")
    console.print(f"data       {stack.server.data_dir}")
    console.print(f"logs       {stack.logs.resolve()}")
    for source in app.sources:
        name = f"RELIQ_SECRETS__{source.upper().replace('-', '_')}"
        console.print(f"secret     {name}={env[name]}")
    if "site" in app.sources:
        body = '{"id": "form-1", "name": "Ada"}'
        mac = hmac.new(env["RELIQ_SECRETS__SITE"].encode(), body.encode(), "sha256").hexdigest()
        address = f"{stack.receiver}/hooks/site"
        console.print(f"try        curl -d '{body}' -H 'x-signature: {mac}' {address}")
    own = f"RELIQ_APP={env['RELIQ_APP']} " if "RELIQ_APP" in env else ""
    console.print(f"           set -a; . {ENV}; set +a; {own}{RELIQ} doctor")
    console.print(f"           kill -USR1 {os.getpid()} stops Postgres, and starts it again")
    console.print("Ctrl-C ends it; the data stay.")


async def _heed_toggle(console: Console, server: PostgresServer) -> None:
    """Let a person take the database away and give it back."""
    is_up = True
    with anyio.open_signal_receiver(signal.SIGUSR1) as signals:
        async for _ in signals:
            await anyio.to_thread.run_sync(server.stop if is_up else server.start)
            is_up = not is_up
            console.print(f"Postgres is {'up' if is_up else 'down'}")


def _made_up() -> dict[str, str]:
    """Read the settings made up before, or make them up; Telegram is a dead end on loopback."""
    if not ENV.exists():
        FOLDER.mkdir(exist_ok=True)
        lines = [
            f"RELIQ_SECRETS__{source}={secrets.token_hex(32)}"
            for source in ("SITE", "TELEGRAM", "GITHUB")
        ]
        lines += [
            f"RELIQ_DATABASE_URL=postgresql://reliq@127.0.0.1:{free_port()}/reliq",
            "RELIQ_DB_BUDGET=1d",  # a person may take the database away for a while
            "RELIQ_TELEGRAM_TOKEN=12345:dev",
            "RELIQ_TELEGRAM_API=http://127.0.0.1:9",
            "RELIQ_ALERT_CHAT_ID=0",
        ]
        ENV.write_text("\n".join(lines) + "\n")
        ENV.chmod(0o600)
    return {name: value or "" for name, value in dotenv_values(ENV).items()}
