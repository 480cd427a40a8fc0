"""`reliq dev`: a reliq of one's own on this machine, until Ctrl-C."""

import hmac
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final

import anyio
import anyio.to_thread
import typer
from rich.console import Console

from reliq.cli.stack import Stack, running
from reliq.servers import PostgresServer
from reliq.settings import environment

FOLDER: Final = Path(".reliq")

STOPPED: Final = 130
"""The exit code of a command that was stopped by Ctrl-C, as shells have it."""


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command()(dev)
    app.command()(demo)


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Go on running afterwards, until Ctrl-C.")
    ] = False,
) -> None:
    """Show the main job end to end, with what usually goes wrong, on an embedded Postgres."""
    from reliq.cli.demo import demo as play  # noqa: PLC0415 - see the package's docstring

    raise typer.Exit(_until_stopped(lambda: play(keep=keep)))


def dev(*, port: Annotated[int, typer.Option(help="The receiver's port.")] = 8000) -> None:
    """
    Run Postgres, receiver and worker on this machine until Ctrl-C; data stay between runs.

    Settings come from the environment and `.env`; what the bundled App needs and nobody gave
    is made up, kept in `.reliq/dev.env`, and printed.
    """
    raise typer.Exit(_until_stopped(lambda: anyio.run(_dev, Console(highlight=False, soft_wrap=True), port)))


def _until_stopped(run: Callable[[], int]) -> int:
    """Run; a SIGTERM ends it in order, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run()
    except KeyboardInterrupt:
        return STOPPED


async def _dev(console: Console, port: int) -> int:
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
    console.print(f"try        curl -d '{body}' -H 'x-signature: {mac}' {stack.receiver}/hooks/site")
    console.print(f"           RELIQ_DATABASE_URL={stack.dsn} reliq show 1")
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
