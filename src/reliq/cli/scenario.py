"""`reliq scenario …`: break the running system on purpose and judge what is left."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import anyio
import typer
from rich.console import Console

from reliq.errors import ScenarioInvalid, ServerFailed
from reliq.servers import PostgresServer, Provider, open_server

if TYPE_CHECKING:
    from reliq.scenario.model import Scenario
    from reliq.scenario.run import Result

scenario = typer.Typer(
    name="scenario", help="Break the running system and judge what is left.", no_args_is_help=True
)

PARAMETERS: Final = {"fsync": "off", "full_page_writes": "off", "max_connections": "200"}
"""Crashes of the machine are not played here; `synchronous_commit` stays on."""

_COLOURS: Final = {"pass": "green", "violated": "bold red", "vacuous": "yellow", "void": "magenta"}
_USAGE: Final = 2


@scenario.callback()
def _group() -> None:
    """Keep `run` a command of its own while it is the only one."""


@scenario.command()
def run(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Scenario files.")],
    *,
    seed: Annotated[
        int | None, typer.Option(help="Of the dice; without it, made of the name.")
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="Runs of each, with the seeds that follow.")
    ] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep history and logs in runs/ also after a pass.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a run.")] = False,
    postgres: Annotated[Provider, typer.Option(help="Where Postgres comes from.")] = "auto",
) -> None:
    """
    Run scenario files and judge them.

    Exit code: 0 pass, 1 violated, 2 a file does not load, 3 vacuous, 4 void.
    """
    if find_spec("yaml") is None:
        _refuse("scenarios need PyYAML: pip install pyyaml")
    from reliq.scenario.load import load  # noqa: PLC0415 - see the package's docstring
    from reliq.scenario.verdict import EXIT_CODES, worst  # noqa: PLC0415 - see the package's docstring

    try:
        loaded = [(file, load(file)) for file in files]
    except ScenarioInvalid as error:
        _refuse(str(error))
    console = Console(highlight=False, soft_wrap=True)
    verdicts = []
    try:
        with open_server(postgres, parameters=PARAMETERS) as server:
            for file, each in loaded:
                for n in range(repeat):
                    show = _show_json if as_json else _show
                    result = _run_once(
                        each, server, seed, n, keep=keep, console=console, quiet=as_json
                    )
                    show(console, result, file, postgres)
                    verdicts.append(result.judgement.verdict)
    except ServerFailed as error:
        typer.echo(f"void: no Postgres: {error}", err=True)
        raise typer.Exit(EXIT_CODES["void"]) from error
    raise typer.Exit(EXIT_CODES[worst(verdicts)])


def _run_once(
    what: "Scenario",
    server: PostgresServer,
    seed: int | None,
    n: int,
    *,
    keep: bool,
    console: Console,
    quiet: bool,
) -> "Result":
    from reliq.scenario.run import run_scenario, seed_of  # noqa: PLC0415 - see the package's docstring

    first = seed_of(what) if seed is None else seed

    async def conducted(tell: Callable[[str], None]) -> "Result":
        return await run_scenario(
            what, server=server, seed=first + n, runs=Path("runs"), keep=keep, tell=tell
        )

    if quiet:
        return anyio.run(conducted, lambda _: None)
    if not console.is_terminal:
        return anyio.run(
            conducted, lambda text: console.print(f"{what.scenario}: {text}", markup=False)
        )
    with console.status(what.scenario) as status:
        return anyio.run(conducted, lambda text: status.update(f"{what.scenario}: {text}"))


def _show(console: Console, result: "Result", file: Path, postgres: str) -> None:
    from reliq.scenario.report import details, headline, repeat_command  # noqa: PLC0415 - see the package's docstring

    console.print(headline(result), style=_COLOURS[result.judgement.verdict], markup=False)
    for line in details(result, repeat=repeat_command(file, result.seed, postgres)):
        console.print(line, markup=False)


def _show_json(console: Console, result: "Result", file: Path, postgres: str) -> None:
    from reliq.scenario.report import as_json, repeat_command  # noqa: PLC0415 - see the package's docstring

    repeat = repeat_command(file, result.seed, postgres)
    console.print(json.dumps(as_json(result, repeat=repeat)), markup=False)


def _refuse(text: str) -> NoReturn:
    typer.echo(text, err=True)
    raise typer.Exit(_USAGE)
