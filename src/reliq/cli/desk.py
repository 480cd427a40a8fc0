"""The operator's desk: look at dead letters, make them anew, replay events, keep house."""

import getpass
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from reliq.cli.screen import plural, print_entry, print_json, words
from reliq.domain.duration import parse_duration
from reliq.domain.event import Delivery
from reliq.domain.job import EventId, JobId
from reliq.domain.redact import printable, scrub
from reliq.errors import RequestRefused

if TYPE_CHECKING:
    from reliq.app import App
    from reliq.postgres.desk import Desk, Row
    from reliq.receiver.accept import Parsed
    from reliq.settings import Settings

T = TypeVar("T")

ID_MAX: Final = 2**63 - 1


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
    """List what waits for a person: dead letters, and deliveries that could not be read."""

    async def work(desk: "Desk", _: "Settings") -> "tuple[list[Row], list[Row]]":
        dead = await desk.list_dead(kind=kind, since=since, limit=limit)
        # A delivery that could not be read has no kind.
        unread = [] if kind else await desk.list_unreadable(since=since, limit=limit)
        return dead, unread

    dead, unreadable = _at_desk(work)
    for row in (*dead, *unreadable):
        row["error"] = printable(scrub(row["error"] or ""))
    if json:
        print_json({"dead": dead, "unreadable": unreadable})
        return
    for row in dead:
        print_entry(_dead_letter(row), row["error"])
    for row in unreadable:
        came = f"event {row['id']} from {row['source']} came {words(row['received_at'])}"
        print_entry(f"{came}, unreadable: replay it once the code is mended", row["error"])
    if not dead and not unreadable:
        typer.echo("no dead letters" + (" that fit" if kind or since else ""))
    if limit in {len(dead), len(unreadable)}:
        typer.echo(f"the newest {limit}: --limit shows more")


def _dead_letter(row: "Row") -> str:
    status = "" if row["status"] is None else f", status {row['status']}"
    anew = "" if row["requeued_as"] is None else f", made anew as job {row['requeued_as']}"
    return (
        f"job {row['id']} {printable(row['kind'])} died {words(row['died_at'])}: "
        f"{row['reason']}, attempt {row['attempt']}{status}{anew}"
    )


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
        age_max = None if force else settings.keep_keys
        delivery = await desk.delivery(EventId(event), age_max=age_max)
        parsed = _read_again(app, event, delivery)
        return await desk.replay_event(
            delivery, EventId(event), dedup_key=parsed.dedup_key, jobs=parsed.jobs,
            key_ttl=settings.keep_keys, force=force,
        )  # fmt: skip

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


def _read_again(app: "App", event: int, delivery: Delivery) -> "Parsed":
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
    return parsed


def prune(*, jobs: Age = None, dead: Age = None, bodies: Age = None, json: Json = False) -> None:
    """
    Delete what is older than it must be kept: jobs, keys, effects, bodies of events.

    Dead letters, and bodies that could not be read, have an age of their own.
    """

    async def work(desk: "Desk", settings: "Settings") -> "Mapping[str, int]":
        return await desk.prune(
            jobs=settings.keep_jobs if jobs is None else jobs,
            dead=settings.keep_dead if dead is None else dead,
            bodies=settings.keep_bodies if bodies is None else bodies,
            effects=settings.keep_effects,
        )

    pruned = _at_desk(work)
    if json:
        print_json(dict(pruned))
        return
    typer.echo(
        f"deleted {plural(pruned['jobs'], 'finished job')}, {plural(pruned['keys'], 'expired key')}"
        f" and {plural(pruned['effects'], 'old effect')}, emptied the bodies of {plural(pruned['bodies'], 'event')}"
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
