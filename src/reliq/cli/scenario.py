"""`reliq scenario …`: break the running system on purpose and judge what is left."""

import os
import signal
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import anyio
import typer
from rich.console import Console

from reliq.cli.screen import plural
from reliq.errors import HarnessError, ScenarioInvalid, ServerFailed
from reliq.servers import IMAGE_DEFAULT, Provider

if TYPE_CHECKING:
    from reliq.scenario.model import Scenario
    from reliq.scenario.rig import Proxy as Who
    from reliq.scenario.series import Item, Series
    from reliq.scenario.verdict import Verdict

scenario = typer.Typer(
    name="scenario", help="Break the running system and judge what is left.", no_args_is_help=True
)


_USAGE, _VOID, _INTERRUPTED = 2, 4, 130

Paths = Annotated[
    list[Path], typer.Argument(metavar="FILE|FOLDER…", help="Scenario files, or folders of them.")
]
Seed = Annotated[int | None, typer.Option(help="Of the dice; without it, made of the name.")]
Repeat = Annotated[int, typer.Option(min=1, help="Runs of each, with the seeds that follow.")]
Jobs = Annotated[int, typer.Option(min=1, max=16, help="Runs at one time.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep what a run leaves also after a pass.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Slice = Annotated[
    str, typer.Option("--slice", metavar="I/N", help="Only every Nth, from the Ith on.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Leave out what had passed when this was last broken off.")
]
Postgres = Annotated[Provider, typer.Option(help="Where Postgres comes from.")]
Image = Annotated[str, typer.Option(help="The image, if it comes from a container.")]
Proxy = Annotated[
    Literal["auto", "toxiproxy", "builtin"], typer.Option(help="Who bends the network's links.")
]
Exec = Annotated[
    bool, typer.Option("--exec", help="Start every process by exec instead of forking one.")
]
OnlyCell = Annotated[
    str, typer.Option("--cell", metavar="NAME=VALUE,…", help="Only this cell of the matrix.")
]
Only = Annotated[list[str] | None, typer.Option("--tag", help="Only files with this tag.")]


@scenario.callback()
def _needs() -> None:
    for module, package in (("yaml", "pyyaml"), ("h11", "h11")):
        if find_spec(module) is None:
            _refuse(f"scenarios need {package}: install reliq with its extra `scenario`")


@scenario.command()
def run(
    paths: Paths,
    *,
    seed: Seed = None,
    repeat: Repeat = 1,
    jobs: Jobs = 1,
    keep: Keep = False,
    json: Json = False,
    part: Slice = "",
    resume: Resume = False,
    tag: Only = None,
    cell: OnlyCell = "",
    postgres: Postgres = "auto",
    image: Image = IMAGE_DEFAULT,
    proxy: Proxy = "auto",
    by_exec: Exec = False,
) -> None:
    """
    Run scenarios, every cell of their matrices, and judge them.

    Exit code: 0 pass, 1 violated, 2 a file does not load, 3 vacuous, 4 void.
    """
    from reliq.scenario.series import items, sliced  # noqa: PLC0415 - see the package's docstring

    loaded = _load(paths, tag)
    loaded = _only(loaded, cell)
    if by_exec:
        loaded = [(file, each.model_copy(update={"spawn": "exec"})) for file, each in loaded]
    try:
        due = sliced(items(loaded, seed=seed, repeat=repeat), part)
    except ValueError as error:
        _refuse(str(error))
    series = _series(postgres, image, proxy, jobs=jobs, keep=keep, json=json, resume=resume)
    _finish(series, due)


@scenario.command()
def placebo(
    paths: Paths,
    *,
    jobs: Jobs = 1,
    json: Json = False,
    postgres: Postgres = "auto",
    image: Image = IMAGE_DEFAULT,
) -> None:
    """
    Run the first cell of each with all harm taken out: none but those without harm may pass.

    Exit code: 0 when every one with harm is vacuous and every other passes, else 1.
    """
    from reliq.scenario.placebo import placebo as without_harm  # noqa: PLC0415
    from reliq.scenario.series import first_cells, items  # noqa: PLC0415

    cells = first_cells(_load(paths, None))
    series = _series(postgres, image, "builtin", jobs=jobs, keep=False, json=json, resume=False)
    without = [(file, without_harm(cell)) for file, cell in cells]
    due = items(without, seed=None, repeat=1)
    verdicts = _played(series, due)
    wrong = [
        f"{item.scenario.id} is {verdict}"
        for item, verdict in zip(due, verdicts, strict=True)
        if verdict != ("vacuous" if item.scenario.is_harmful else "pass")
    ]
    for line in wrong:
        typer.echo(f"placebo: {line}, and should not be", err=True)
    typer.echo(f"placebo: {len(due) - len(wrong)} of {len(due)} as they should be", err=True)
    raise typer.Exit(1 if wrong else 0)


@scenario.command()
def plan(paths: Paths, *, seed: Seed = None, cell: OnlyCell = "", json: Json = False) -> None:
    """Print every resolved step of every cell, and start nothing."""
    from reliq.scenario.plan import planned  # noqa: PLC0415 - see the package's docstring
    from reliq.scenario.run import seed_of  # noqa: PLC0415

    for _, each in _only(_load(paths, None), cell):
        if json:
            typer.echo(each.model_dump_json(by_alias=True, exclude_defaults=True))
            continue
        for line in planned(each, seed_of(each) if seed is None else seed):
            typer.echo(line)


@scenario.command()
def check(
    history: Annotated[Path, typer.Argument(metavar="HISTORY", help="A history.jsonl.")],
    *,
    expect: Annotated[
        Path | None, typer.Option(help="Judge by this file, not by the plan beside the history.")
    ] = None,
) -> None:
    """Judge a stored history again; exit codes as of `run`."""
    from reliq.scenario.load import load  # noqa: PLC0415 - see the package's docstring
    from reliq.scenario.report import details  # noqa: PLC0415
    from reliq.scenario.run import Result  # noqa: PLC0415
    from reliq.scenario.stored import read_history, read_plan  # noqa: PLC0415
    from reliq.scenario.verdict import EXIT_CODES, judge  # noqa: PLC0415

    try:
        about, found = read_history(history)
        if expect is None:
            expected = read_plan(history.with_name("plan.json"), about["cell"])
        else:
            cells = {str(cell.cell): cell for cell in load(expect)}
            if (cell := str(about["cell"])) not in cells:
                _refuse(f"{expect} has no cell {cell}")
            expected = cells[cell]
        judgement = judge(expected, found, about["doubts"])
    except ScenarioInvalid as error:
        _refuse(str(error))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        _refuse(f"{history}: an entry lacks what docs/history.md says that it has: {error!r}")
    result = Result(scenario=expected, seed=about["seed"], judgement=judgement, history=found,
                    seconds=0, folder=None)  # fmt: skip
    typer.echo(f"{judgement.verdict}: {expected.id}")
    for line in details(result, repeat=f"reliq scenario check {history}"):
        typer.echo(line)
    raise typer.Exit(EXIT_CODES[judgement.verdict])


@scenario.command()
def lint(paths: Paths) -> None:
    """Say what is wrong with scenario files; exit code 2 if anything is."""
    loaded = _load(paths, None)
    files = {file for file, _ in loaded}
    typer.echo(f"{plural(len(files), 'file')}, {plural(len(loaded), 'cell')}: well written")


@scenario.command(name="list")
def list_(paths: Paths, *, json: Json = False) -> None:
    """List scenarios, with their cells, tags and the promises they guard."""
    from reliq.scenario.plan import listed  # noqa: PLC0415 - see the package's docstring

    for line in listed(_load(paths, None), as_json=json):
        typer.echo(line)


@scenario.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from reliq.scenario.schema import schema as of_files  # noqa: PLC0415

    typer.echo(of_files(), nl=False)


@scenario.command()
def mutants(
    folder: Annotated[Path, typer.Argument(help="Patches of the package.")] = Path(
        "tests/chaos/mutants"
    ),
    *,
    scenarios: Annotated[Path, typer.Option(help="Where the scenarios are.")] = Path("scenarios"),
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each mutant.")] = 1,
    part: Slice = "",
    table: Annotated[
        Path | None, typer.Option(help="Write the kill matrix here, as docs/kill-matrix.md.")
    ] = None,
    postgres: Postgres = "auto",
    image: Image = IMAGE_DEFAULT,
) -> None:
    """
    Run each mutant in its scenario: it must be found out with every seed.

    Exit code: 0 when all were, else 1; 2 when a patch no longer applies.
    """
    from reliq.scenario.mutants import Kill, kill_all, load_mutants, matrix  # noqa: PLC0415
    from reliq.scenario.series import sliced  # noqa: PLC0415

    try:
        chosen = sliced(load_mutants(folder, scenarios), part)
    except (ValueError, ScenarioInvalid) as error:
        _refuse(str(error))

    def tell(kill: Kill) -> None:
        typer.echo(kill.line())

    try:
        kills = anyio.run(
            lambda: kill_all(chosen, provider=postgres, image=image, seeds=seeds, tell=tell)
        )
    except ScenarioInvalid as error:
        _refuse(str(error))
    if table is not None:
        table.write_text(matrix(kills), encoding="utf-8")
    alive = [kill for kill in kills if not kill.is_killed]
    typer.echo(f"{len(kills) - len(alive)} of {len(kills)} mutants found out, {seeds} seeds each")
    raise typer.Exit(1 if alive else 0)


def _load(paths: list[Path], tags: list[str] | None) -> list[tuple[Path, "Scenario"]]:
    from reliq.scenario.load import files_below, load  # noqa: PLC0415 - see the package's docstring

    problems, found = [], []
    try:
        files = files_below(paths)
    except ScenarioInvalid as error:
        _refuse(str(error))
    for file in files:
        try:
            found += [(file, cell) for cell in load(file)]
        except ScenarioInvalid as error:
            problems.append(str(error))
    if problems:
        _refuse("\n".join(problems))
    chosen = [(file, cell) for file, cell in found if not tags or set(tags) <= set(cell.tags)]
    if not chosen:
        _refuse(
            f"no scenario has the tags {', '.join(tags or ())}: `reliq scenario list` shows them"
        )
    return chosen


def _only(loaded: list[tuple[Path, "Scenario"]], cell: str) -> list[tuple[Path, "Scenario"]]:
    """Keep the cell that is asked for, if one is."""
    chosen = [(file, each) for file, each in loaded if not cell or f"[{cell}]" in each.id]
    if not chosen:
        _refuse(f"no cell {cell!r} here: `reliq scenario list FILE` shows them")
    return chosen


def _series(
    postgres: Provider, image: str, proxy: "Who", *, jobs: int, keep: bool, json: bool, resume: bool
) -> "Series":
    from reliq.scenario.screen import JsonLines, Lines, Live  # noqa: PLC0415
    from reliq.scenario.series import Series  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    screen = JsonLines() if json else Live(console) if console.is_terminal else Lines(console)
    return Series(
        provider=postgres, image=image, proxy=proxy, runs=Path("runs"), jobs=jobs, keep=keep,
        resume=resume, screen=screen,
    )  # fmt: skip


def _played(series: "Series", due: "list[Item]") -> "list[Verdict]":
    # Both end everything that was started before we end; a shell may have told us to ignore the one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        return anyio.run(series.play, due)
    except KeyboardInterrupt:
        typer.echo("interrupted: what was not told above is not judged", err=True)
        sys.stdout.flush()
        os._exit(_INTERRUPTED)  # a thread may still wait for what a second Ctrl-C has cut off
    except (ServerFailed, HarnessError) as error:
        typer.echo(f"void: {error}", err=True)
        raise typer.Exit(_VOID) from error
    except BaseExceptionGroup as group:
        if group.split(SystemExit)[1] is None:  # nobody reads us any more
            raise typer.Exit(1) from group
        raise


def _finish(series: "Series", due: "list[Item]") -> NoReturn:
    from reliq.scenario.verdict import EXIT_CODES, worst  # noqa: PLC0415

    verdicts = _played(series, due)
    if len(verdicts) > 1:
        counted = ", ".join(f"{count} {verdict}" for verdict, count in Counter(verdicts).items())
        typer.echo(f"{len(verdicts)} runs: {counted}", err=True)
    raise typer.Exit(EXIT_CODES[worst(verdicts)])


def _refuse(text: str) -> NoReturn:
    typer.echo(text, err=True)
    raise typer.Exit(_USAGE)
