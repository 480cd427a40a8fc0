"""`reliq demo` and `reliq dev`: see it work on this machine."""

import signal
from collections.abc import Callable
from typing import Annotated, Final

import typer

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
    from reliq.demo.play import demo as play  # noqa: PLC0415 - see the package's docstring

    raise typer.Exit(_until_stopped(lambda: play(keep=keep)))


def dev(*, port: Annotated[int, typer.Option(help="The receiver's port.")] = 8000) -> None:
    """
    Run Postgres, receiver and worker on this machine until Ctrl-C; data stay between runs.

    Settings come from the environment and `.env`; what the bundled App needs and nobody gave
    is made up, and kept. All that it runs with is in `.reliq/dev.env`.
    """
    import anyio  # noqa: PLC0415 - see the package's docstring

    from reliq.demo.dev import dev as run  # noqa: PLC0415

    code = _until_stopped(lambda: anyio.run(run, port))
    raise typer.Exit(0 if code == STOPPED else code)  # to be stopped is how it is meant to end


def _until_stopped(run: Callable[[], int]) -> int:
    """Run; a SIGTERM ends it in order, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run()
    except KeyboardInterrupt:
        return STOPPED
