"""`reliq doctor`: is everything as it should be? Works also where nothing is."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliq.cli.diagnosis import EXIT_CODES, Clocks, Finding, Measured, Verdict, diagnose, verdict
from reliq.cli.screen import print_json, print_table
from reliq.errors import SchemaMismatch, StoreUnavailable

if TYPE_CHECKING:
    from reliq.app import App
    from reliq.settings import Settings

SettingRow = tuple[str, str, str]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    *, json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False
) -> None:
    """
    Examine settings, App, database and queue.

    Exits with 0 if all is well, 1 if something needs a person, 2 if the configuration is
    wrong, 75 if the database is away.
    """
    import anyio  # noqa: PLC0415 - see the package's docstring

    from reliq.cli.settings import described  # noqa: PLC0415 - see the package's docstring
    from reliq.wiring.loading import examined  # noqa: PLC0415 - see the package's docstring

    settings, second_best, app, problems = examined()
    best = settings or second_best
    told = [] if best is None else _with_problems(described(best), problems)
    measured = Measured() if settings is None else anyio.run(_measure, settings, app)
    findings = [] if settings is None else diagnose(measured)
    summed = verdict(problems, measured, findings)
    if json:
        print_json(_document(summed, problems, told, measured, findings))
    else:
        _print(summed, problems, told, findings)
    raise typer.Exit(EXIT_CODES[summed])


def _with_problems(told: list[SettingRow], problems: list[str]) -> list[SettingRow]:
    """Show no value for a setting that a problem names: the second best's is made up."""
    named = {problem.partition(" ")[0].partition("=")[0] for problem in problems}
    return [(name, "see below" if name in named else value, origin) for name, value, origin in told]


async def _measure(settings: "Settings", app: "App | None") -> Measured:
    from reliq.postgres.desk import Desk  # noqa: PLC0415 - see the package's docstring
    from reliq.postgres.migrate import why_not_current  # noqa: PLC0415 - see the package's docstring
    from reliq.wiring.stores import database  # noqa: PLC0415 - see the package's docstring

    mismatch = clocks = None
    try:
        async with database(settings).pool("reliq doctor", size=1) as pool:
            desk = Desk(pool)
            mismatch = await why_not_current(pool)
            clocks = await _compare_clocks(desk)
            if mismatch is None:
                unknown = {} if app is None else await desk.find_unknown_kinds(list(app.handlers))
                figures = await desk.examine()
                kinds = None if app is None else list(app.handlers)
                return Measured(clocks=clocks, figures=figures, kinds=kinds, unknown_kinds=unknown)
    except StoreUnavailable as error:
        return Measured(away=str(error))
    except SchemaMismatch as error:  # it changed while we looked
        mismatch = str(error)
    return Measured(mismatch=mismatch, clocks=clocks)


async def _compare_clocks(desk: Any) -> Clocks:
    # The first round trip prepares the statement; the others are as short as they get.
    tries = []
    for _ in range(4):
        asked = time.time()
        told = await desk.read_clock()
        tries.append(Clocks.of(asked, told.timestamp(), time.time()))
    return min(tries, key=lambda clocks: clocks.bound)


def _document(
    summed: Verdict,
    problems: list[str],
    told: list[SettingRow],
    measured: Measured,
    findings: list[Finding],
) -> dict[str, Any]:
    clocks = measured.clocks
    return {
        "verdict": summed,
        "problems": problems,
        "findings": [
            {"check": each.check, "well": each.well, "text": each.text} for each in findings
        ],
        "settings": [
            {"name": name, "value": value, "origin": origin} for name, value, origin in told
        ],
        "figures": measured.figures,
        "clocks": None if clocks is None else {"ahead": clocks.ahead, "bound": clocks.bound},
        "unknown_kinds": measured.unknown_kinds,
    }


def _print(
    summed: Verdict, problems: list[str], told: list[SettingRow], findings: list[Finding]
) -> None:
    if told:
        print_table(
            ("setting", "from", "value"), [(name, where, value) for name, value, where in told]
        )
        typer.echo("")
    for problem in problems:
        typer.echo(f"wrong  {problem}")
    if findings:
        rows = [("well" if each.well else "LOOK", each.check, each.text) for each in findings]
        print_table(("", "what", "finding"), rows)
    typer.echo(f"\n{summed}")
