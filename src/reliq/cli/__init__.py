"""
The command line: parse, load the settings, call one function, say how it went.

| exit code | means                                                          |
|-----------|----------------------------------------------------------------|
| 0         | done                                                           |
| 1         | refused, or it needs a person; one line on stderr says why     |
| 2         | wrong usage, or a wrong configuration: every problem is listed |
| 75        | the database is away: the same command may succeed later       |
| 124       | time is over that was given with `--within`, as of `timeout`   |

Each module of a group of commands has a function `register`, or a Typer of its name. Only the group of the command
that is asked for gets imported, and it imports what is heavy inside the command: every start
of a worker passes through here. An error that nobody expected keeps its traceback.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Final

import typer

from reliq.domain.outcome import cause
from reliq.errors import ConfigInvalid, ReliqError, StoreUnavailable

REFUSED: Final = 1
MISCONFIGURED: Final = 2
UNAVAILABLE: Final = 75

COMMANDS: Final[Mapping[str, str]] = {
    "serve": "run",
    "worker": "run",
    "dev": "dev",
    "demo": "dev",
    "migrate": "desk",
    "doctor": "doctor",
    "failed": "letters",
    "retry": "letters",
    "ignore": "letters",
    "show": "desk",
    "cancel": "cancel",
    "rekey": "keys",
    "endpoint": "endpoint",
    "replay": "desk",
    "prune": "desk",
    "limit": "limits",
    "limits": "limits",
    "pause": "limits",
    "resume": "limits",
    "drain": "limits",
    "report": "report",
    "scenario": "scenario",
    "bench": "bench",
}
"""Command → the module of this package that registers it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit; without arguments those of the process are taken."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with _ungrouped():
            commands(given[0] if given else "")(args=given, prog_name="reliq")
    except ConfigInvalid as error:
        typer.echo("reliq: the configuration is wrong", err=True)
        for problem in error.problems:
            typer.echo(f"  - {problem}", err=True)
        sys.exit(MISCONFIGURED)
    except ReliqError as error:
        typer.echo(f"reliq: {error}", err=True)
        sys.exit(UNAVAILABLE if isinstance(error, StoreUnavailable) else REFUSED)


@contextmanager
def _ungrouped() -> Iterator[None]:
    """Take a lone error out of the groups that task groups wrap it in."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise cause(group) from None


def commands(asked: str = "") -> typer.Typer:
    """Collect the commands: the one that is asked for, or all if there is none of that name."""
    app = typer.Typer(
        help="Receive webhooks, queue jobs in Postgres, work them off.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)  # without one a lone command would not need its name
    for group in dict.fromkeys([COMMANDS[asked]] if asked in COMMANDS else COMMANDS.values()):
        module = import_module(f"reliq.cli.{group}")
        if isinstance(commands_of_its_own := getattr(module, group, None), typer.Typer):
            app.add_typer(commands_of_its_own, name=group)
        else:
            module.register(app)
    return app


def _tell_version(asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if asked:
        typer.echo(f"reliq {version('reliq')}")
        raise typer.Exit


def _options(
    *,
    _: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version."),
    ] = False,
) -> None:
    """Receive webhooks, queue jobs in Postgres, work them off."""
