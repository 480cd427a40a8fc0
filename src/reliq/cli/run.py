"""`reliq serve` and `reliq worker`: the two commands of production."""

import os
import sys
import threading
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Annotated

import typer

AppOption = Annotated[str | None, typer.Option("--app", help="The App to run, as module:name.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command()(serve)
    app.command()(worker)


def serve(
    *,
    app: AppOption = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on.")] = None,
) -> None:
    """Receive webhooks: verify, store with their jobs, answer."""
    from reliq import logs  # noqa: PLC0415 - a worker does not need the receiver
    from reliq.wiring.loading import configured  # noqa: PLC0415
    from reliq.wiring.receiver import serve as serving  # noqa: PLC0415

    _override(app=app, host=host, port=port)
    settings, chosen = configured()
    logs.configure(settings.log)
    _run(lambda: serving(settings, chosen))


def worker(
    *,
    app: AppOption = None,
    concurrency: Annotated[int | None, typer.Option(help="Jobs to run at once.")] = None,
    queues: Annotated[
        str | None, typer.Option(help="Claim of these only, as urgent,default,reports:20.")
    ] = None,
    health_port: Annotated[
        int | None, typer.Option(help="Serve /health and /ready on this port.")
    ] = None,
    exit_on_db_error: Annotated[
        bool, typer.Option("--exit-on-db-error", help="Exit (75) at the database's first error.")
    ] = False,
) -> None:
    """Work jobs off until SIGTERM; what does not end within the grace is handed back."""
    from reliq import logs  # noqa: PLC0415 - a receiver does not need the worker
    from reliq.wiring.loading import configured  # noqa: PLC0415
    from reliq.wiring.worker import work  # noqa: PLC0415

    _override(app=app, concurrency=concurrency, queues=queues, health_port=health_port)
    settings, chosen = configured()
    logs.configure(settings.log)
    _run(lambda: work(settings, chosen, exit_on_db_error=exit_on_db_error))


def _override(**options: object) -> None:
    """Let options beat the environment; they are then checked and shown like any setting."""
    for name, value in options.items():
        if value is not None:
            os.environ[f"RELIQ_{name.upper()}"] = str(value)  # noqa: TID251 - the command line


def _run(main: Callable[[], Awaitable[None]]) -> None:
    """
    Run to the end, on uvloop where it is installed.

    A plain function that outlived its time limit still sits in its thread, and the interpreter
    would wait for it: the process ends regardless, its jobs are settled or handed back.
    """
    import anyio  # noqa: PLC0415 - see the package's docstring

    anyio.run(main, backend_options={"use_uvloop": find_spec("uvloop") is not None})
    if any(thread is not threading.main_thread() for thread in threading.enumerate()):
        sys.stderr.flush()
        os._exit(0)
