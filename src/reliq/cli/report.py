"""`reliq report …`: ask for a report, and hand out a link to it."""

from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from reliq.cli.desk import Job, at_desk, some_time
from reliq.cli.screen import words
from reliq.errors import RequestRefused

report = typer.Typer(
    name="report", help="Ask for reports, and hand out links to them.", no_args_is_help=True
)

Params = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="As often as needed.")
]
For = Annotated[
    timedelta | None,
    typer.Option(
        "--for", parser=some_time, metavar="TIME", help="How long it is good: 1d, unless given."
    ),
]

A_DAY: Final = timedelta(days=1)


@report.command()
def request(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the App's reports, as jobs.")],
    *,
    param: Params = None,
) -> None:
    """Ask for a report: it is made by the workers, and has the number that is printed."""
    from reliq.automations import report as reports  # noqa: PLC0415 - see the package's docstring
    from reliq.postgres.enqueue import enqueue_job  # noqa: PLC0415
    from reliq.wiring.loading import load_app, sealing  # noqa: PLC0415

    params = dict(_pair(text) for text in param or ())

    async def work(desk: Any, settings: Any) -> int:
        app = load_app(settings)
        known = reports.reports_of(app)
        if known is not None and name not in known:
            raise RequestRefused(
                f"{reports.unknown(name, known)}; set RELIQ_APP to the App that makes it"
            )
        job = reports.request(name, params)
        return (await enqueue_job(desk.pool, job, sealing=sealing(settings, app))).job_id

    number = at_desk(work)
    typer.echo(f"report {number} is asked for; its link: reliq report link {number}")


@report.command()
def link(number: Job, *, lasts: For = None) -> None:
    """Print a link to a report; `/progress` before the question mark shows how far it is."""
    from reliq.automations.report import link as linking  # noqa: PLC0415 - see the package's docstring
    from reliq.postgres.reports import PostgresReports  # noqa: PLC0415

    async def work(desk: Any, settings: Any) -> tuple[str, str]:
        if (found := await PostgresReports(desk.pool).find(number)) is None:
            raise RequestRefused(f"there is no report {number}: `reliq report request` makes one")
        return linking(settings, number, found.now + (lasts or A_DAY)), _how_far(found)

    address, how_far = at_desk(work)
    typer.echo(address)
    typer.echo(f"report {number} {how_far}", err=True)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise typer.BadParameter(f"{text!r} is no NAME=VALUE, as since=2026-11-30T00:00:00+00:00")
    return name, value


def _how_far(found: Any) -> str:
    if found.state == "running":
        dead = f", {found.dead} dead: see `reliq failed`" if found.dead else ""
        return f"is being made: {found.done} of {words(found.total) or '?'} chunks, {found.rows} rows{dead}"
    reason = f": {found.reason}" if found.reason else ""
    return f"is {found.state}: {found.rows} rows{reason}"
