"""`reliq dev`: a reliq of one's own, that a person can hurt by hand."""

import hmac
import os
import secrets
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from rich.console import Console

from reliq.demo.stack import RELIQ, Stack, running
from reliq.servers import PostgresServer
from reliq.settings import environment

FOLDER: Final = Path(".reliq")


async def dev(port: int) -> int:
    """Run it until cancelled; return 1 when a part of it ended by itself."""
    console = Console(highlight=False, soft_wrap=True)
    given = {name: value for name, (value, _) in environment().items()}
    env = _made_up() | given
    async with running(FOLDER, data=FOLDER / "postgres", env=env, port=port) as stack:
        _introduce(console, stack, env)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_heed_toggle, console, stack.server)
            while (problem := stack.ended()) is None:
                await anyio.sleep(0.5)
            tasks.cancel_scope.cancel()
        console.print(f"[red]{problem}[/red]")
        return 1


def _introduce(console: Console, stack: Stack, env: Mapping[str, str]) -> None:
    console.print(f"receiver   {stack.receiver}/hooks/…")
    console.print(f"database   {stack.dsn}")
    console.print(f"data       {stack.server.data_dir}")
    console.print(f"logs       {stack.logs.resolve()}")
    for name, value in env.items():
        if name.startswith("RELIQ_SECRETS__"):
            console.print(f"secret     {name}={value}")
    body = '{"id": "form-1", "name": "Ada"}'
    mac = hmac.new(env["RELIQ_SECRETS__SITE"].encode(), body.encode(), "sha256").hexdigest()
    console.print(
        f"try        curl -d '{body}' -H 'x-signature: {mac}' {stack.receiver}/hooks/site"
    )
    console.print(f"           RELIQ_DATABASE_URL={stack.dsn} {RELIQ} show 1")
    console.print(f"kill -USR1 {os.getpid()} stops Postgres, and starts it again")
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
    """Secrets for the bundled App, the same at every run; Telegram is a dead end on loopback."""
    file = FOLDER / "dev.env"
    if not file.exists():
        FOLDER.mkdir(exist_ok=True)
        lines = [
            f"RELIQ_SECRETS__{source}={secrets.token_hex(32)}"
            for source in ("SITE", "TELEGRAM", "GITHUB")
        ]
        lines += [
            "RELIQ_TELEGRAM_TOKEN=12345:dev",
            "RELIQ_TELEGRAM_API=http://127.0.0.1:9",
            "RELIQ_ALERT_CHAT_ID=0",
        ]
        file.write_text("\n".join(lines) + "\n")
        file.chmod(0o600)
    return {name: value for name, (value, _) in environment(file).items()}
