"""The operator's desk: look at dead letters, make them anew, replay events, keep house."""

import getpass
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from reliq.cli.screen import plural, print_json, print_table
from reliq.domain.duration import format_duration, parse_duration
from reliq.domain.event import Delivery
from reliq.domain.job import EventId, JobId, NewJob
from reliq.domain.redact import printable, scrub
from reliq.errors import RequestRefused

if TYPE_CHECKING:
    from reliq.app import App
    from reliq.postgres.desk import Desk, Row
    from reliq.settings import Settings

T = TypeVar("T")

ID_MAX: Final = 2**63 - 1
ERROR_SHOWN: Final = 120
"""Characters of an error in a listing; `show` has all of it."""


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Job = Annotated[int, typer.Argument(metavar="ID", min=1, max=ID_MAX, help="The job's number.")]
Event = Annotated[
    int, typer.Argument(metavar="EVENT_ID", min=1, max=ID_MAX, help="The event's number.")
]
Kind = Annotated[str | None, typer.Option(help="Only jobs of this kind.")]
Since = Annotated[
    timedelta | None,
    typer.Option(parser=_duration, metavar="AGE", help="Only deaths since then, as 2h or 7d."),
]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, newest first.")]
By = Annotated[str | None, typer.Option(help="Who asks; your login name unless given.")]
Reason = Annotated[str, typer.Option(help="Why, for those who look at the job later.")]
Force = Annotated[bool, typer.Option("--force", help="Make new jobs even where they exist.")]
Age = Annotated[
    timedelta | None,
    typer.Option(parser=_duration, metavar="AGE", help="Older than this; else the setting's."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    for command in (failed, show, retry, replay, prune, migrate):
        app.command()(command)


def failed(
    *, kind: Kind = None, since: Since = None, limit: Limit = 20, json: Json = False
) -> None:
    """List dead letters: jobs that will not be tried again unless a person asks."""
    rows = _at_desk(lambda desk, _: desk.list_dead(kind=kind, since=since, limit=limit))
    for row in rows:
        row["error"] = printable(scrub(row["error"] or ""))
    if json:
        print_json({"dead": rows})
        return
    if not rows:
        typer.echo("no dead letters" + (" that fit" if kind or since else ""))
        return
    names = ("id", "kind", "died", "reason", "tries", "status", "made anew as", "error")
    print_table(names, [_dead_letter(row) for row in rows])
    if len(rows) == limit:
        typer.echo(f"the newest {limit}: --limit shows more")


def _dead_letter(row: "Row") -> list[object]:
    error = " ".join(row["error"].split())
    return [
        row["id"], row["kind"], row["died_at"], row["reason"], row["attempt"], row["status"],
        row["requeued_as"],
        error if len(error) <= ERROR_SHOWN else f"{error[: ERROR_SHOWN - 1]}…",
    ]  # fmt: skip


def show(job: Job, *, json: Json = False) -> None:
    """Show a job, its event and every attempt, with secrets masked."""
    from reliq.cli.show import presentable, print_job  # noqa: PLC0415 - see the package's docstring

    document = presentable(_at_desk(lambda desk, _: desk.show_job(JobId(job))))
    if json:
        print_json(document)
    else:
        print_job(document)


def retry(job: Job, *, by: By = None, reason: Reason = "") -> None:
    """Make a new job from a dead letter and print its number; at most one per dead letter."""
    who = by or _login()
    new, fresh = _at_desk(lambda desk, _: desk.requeue_job(JobId(job), by=who, reason=reason))
    typer.echo(new)
    said = f"job {new} is made from dead letter {job}"
    typer.echo(said if fresh else f"{said} already: nothing is new", err=True)


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run under a number without a name
        return f"uid {os.getuid()}"


def replay(event: Event, *, force: Force = False, json: Json = False) -> None:
    """Read a stored event again with today's code; jobs that exist already are not doubled."""
    from reliq.wiring.loading import load_app  # noqa: PLC0415 - see the package's docstring

    async def work(desk: "Desk", settings: "Settings") -> "list[Row]":
        app = load_app(settings)
        jobs = _read_again(app, event, await desk.delivery(EventId(event)))
        return await desk.replay_event(
            EventId(event), jobs, key_ttl=settings.keep_keys, force=force
        )

    rows = _at_desk(work)
    if json:
        print_json({"event_id": event, "jobs": rows})
        return
    new = sum(not row["duplicate"] for row in rows)
    typer.echo(f"event {event}: {plural(new, 'new job')}, {len(rows) - new} of before")
    for row in rows:
        typer.echo(f"  job {row['job_id']}  {printable(row['kind'])}{_of_before(row)}")
    if not rows:
        typer.echo("  its source makes no jobs of it")


def _of_before(row: "Row") -> str:
    return "  (of before: --force makes a new one)" if row["duplicate"] else ""


def _read_again(app: "App", event: int, delivery: Delivery) -> Sequence[NewJob]:
    from reliq.receiver.accept import parse  # noqa: PLC0415 - see the package's docstring

    source = app.sources.get(delivery.source)
    if source is None:
        known = ", ".join(sorted(app.sources)) or "none"
        raise RequestRefused(
            f"event {event} came from the source {delivery.source!r}, which this App does not "
            f"have (it has: {known}): set RELIQ_APP to the App that has it"
        )
    parsed = parse(source, delivery)
    if parsed.error is not None:
        said = printable(scrub(parsed.error))
        raise RequestRefused(f"event {event} cannot be read: {said}; nothing was written")
    return parsed.jobs


def prune(*, jobs: Age = None, bodies: Age = None) -> None:
    """Delete finished jobs and expired keys, and empty the bodies of old events."""

    async def work(desk: "Desk", settings: "Settings") -> tuple[timedelta, timedelta, Any]:
        ages = (
            settings.keep_jobs if jobs is None else jobs,
            settings.keep_bodies if bodies is None else bodies,
        )
        return *ages, await desk.prune(jobs=ages[0], bodies=ages[1])

    jobs_age, bodies_age, pruned = _at_desk(work)
    typer.echo(
        f"deleted {plural(pruned['jobs'], 'job')} finished over {format_duration(jobs_age)} ago "
        f"and {plural(pruned['keys'], 'expired key')}, emptied "
        f"{plural(pruned['bodies'], 'event')} older than {format_duration(bodies_age)}"
    )


def migrate() -> None:
    """Bring the tables to the version this reliq needs; any number may run at once."""
    import anyio  # noqa: PLC0415 - see the package's docstring

    from reliq.postgres.migrate import migrate as bring_up  # noqa: PLC0415 - see the package's docstring
    from reliq.wiring.loading import loaded  # noqa: PLC0415 - see the package's docstring

    applied = anyio.run(bring_up, loaded().dsn)
    typer.echo(f"applied {', '.join(applied)}" if applied else "the schema is current")


def _at_desk(work: "Callable[[Desk, Settings], Awaitable[T]]") -> T:
    """Load the settings, open the desk, do one piece of work at it."""
    import anyio  # noqa: PLC0415 - see the package's docstring

    from reliq.wiring.loading import loaded  # noqa: PLC0415 - see the package's docstring
    from reliq.wiring.stores import desk  # noqa: PLC0415

    settings = loaded()

    async def inside() -> T:
        async with desk(settings) as opened:
            return await work(opened, settings)

    return anyio.run(inside)
