"""`reliq dev`: a reliq of one's own, that a person can hurt by hand."""

import os
import secrets
import shlex
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from dotenv import dotenv_values
from rich.console import Console

from reliq.app import App
from reliq.demo.stack import RELIQ, Place, Stack, running
from reliq.domain.event import Delivery
from reliq.domain.signature import Genuine, proof, verify
from reliq.receiver.accept import parse
from reliq.servers import PostgresServer
from reliq.servers.loopback import free_port
from reliq.settings import Settings, environment
from reliq.wiring.loading import configured
from reliq.wiring.sockets import listening

FOLDER: Final = Path(".reliq")

MADE_UP: Final = FOLDER / "made-up.env"
"""The settings of the bundled App that nobody gave, and the database: the same at every run."""

ENV: Final = FOLDER / "dev.env"
"""Every setting of the newest run, given or made up, for other commands to run with the same."""

EXAMPLE: Final = '{"id": "form-1", "name": "Ada"}'


async def dev(port: int) -> int:
    """
    Run it until cancelled; return 1 when a part of it ended by itself.

    Raises:
        ConfigInvalid: the settings or the App are wrong, or the port is taken.

    """
    listening("127.0.0.1", port, "--port").close()
    made = _made_up()
    given = {name: value for name, (value, _) in environment().items() if value}
    ours = {"RELIQ_DATABASE_URL": made["RELIQ_DATABASE_URL"], "RELIQ_PORT": str(port)}
    env = made | given | ours
    os.environ.update(env)  # noqa: TID251 - the command's own settings, to be checked first
    settings, app = configured()
    _write(ENV, env)
    console = Console(highlight=False, soft_wrap=True)
    place = Place(FOLDER / "postgres", urlsplit(env["RELIQ_DATABASE_URL"]).port)
    async with running(FOLDER, place=place, env=env, port=port) as stack:
        _introduce(console, stack, app, settings)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_heed_toggle, console, stack.server)
            while (problem := stack.ended()) is None:
                await anyio.sleep(0.5)
            tasks.cancel_scope.cancel()
        console.print(f"[red]{problem}[/red]")
        return 1


def _introduce(console: Console, stack: Stack, app: App, settings: Settings) -> None:
    console.print(f"receiver   {stack.receiver}/hooks/…")
    console.print(f"database   {stack.dsn}")
    console.print(f"data       {stack.server.data_dir}")
    console.print(f"logs       {stack.logs.resolve()}")
    for source in app.sources:
        name = f"RELIQ_SECRETS__{source.upper().replace('-', '_')}"
        console.print(f"secret     {name}={settings.secret(source)}", markup=False)
    for line in tries(app, settings, stack.receiver):
        console.print(f"try        {line}", markup=False)
    console.print(f"           set -a; . {ENV}; set +a; {RELIQ} doctor")
    console.print(f"           kill -USR1 {os.getpid()} stops Postgres, and starts it again")
    console.print("Ctrl-C ends it; the data stay.")


def tries(app: App, settings: Settings, receiver: str) -> Iterator[str]:
    """Write a delivery, signed as its sender would, to each source that takes and can read the example."""
    for name, source in app.sources.items():
        scheme, secret = source.signature, (settings.secret(name) or "").encode()
        header, value = scheme.header, proof(scheme, secret, EXAMPLE.encode())
        pairs = [(header.lower().encode(), value)]
        delivery = Delivery(source=name, headers=pairs, body=EXAMPLE.encode())
        is_taken = isinstance(verify(scheme, [secret], delivery), Genuine)
        if is_taken and parse(source, delivery, app.checked).error is None:
            told = shlex.quote(f"{header}: {value.decode()}")
            yield f"curl -d '{EXAMPLE}' -H {told} {receiver}/hooks/{name}"


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
    FOLDER.mkdir(exist_ok=True)
    if not (ignored := FOLDER / ".gitignore").exists():
        ignored.write_text("*\n")  # secrets are in here, and a database
    if not MADE_UP.exists():
        named = {
            f"RELIQ_SECRETS__{source}": secrets.token_hex(32)
            for source in ("SITE", "TELEGRAM", "GITHUB")
        }
        address = f"postgresql://reliq@127.0.0.1:{free_port()}/reliq"
        _write(MADE_UP, named | {
            "RELIQ_DATABASE_URL": address,
            "RELIQ_DB_BUDGET": "1d",  # a person may take the database away for a while
            "RELIQ_TELEGRAM_TOKEN": "12345:dev",
            "RELIQ_TELEGRAM_API": "http://127.0.0.1:9",
            "RELIQ_ALERT_CHAT_ID": "0",
        })  # fmt: skip
    return {name: value or "" for name, value in dotenv_values(MADE_UP).items()}


def _write(path: Path, env: Mapping[str, str]) -> None:
    """Write settings as a shell reads them, for nobody else's eyes."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in env.items()))
