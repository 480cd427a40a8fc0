"""The operator's desk: look at a job, replay an event, keep house."""

import getpass
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from reliq.cli.screen import plural, print_json
from reliq.domain.duration import parse_duration
from reliq.domain.event import Delivery
from reliq.domain.job import EventId, JobId
from reliq.domain.redact import printable, scrub
from reliq.errors import ConfigInvalid, RequestRefused

if TYPE_CHECKING:
    from reliq.app import App
    from reliq.cli.show import Secrets
    from reliq.postgres.desk import Desk, Row
    from reliq.receiver.accept import Parsed
    from reliq.settings import Settings

T = TypeVar("T")

ID_MAX: Final = 2**63 - 1


def given(text: str) -> str:
    """Refuse an empty text, which as a filter would let everything through, or nothing."""
    if not text.strip():
        raise typer.BadParameter("it is empty: leave it out, or say what it is")
    return text


def duration(text: str) -> timedelta:
    """Read an option that is a duration."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def some_time(text: str) -> timedelta:
    """Read an option that is a duration, and not none at all."""
    if not (time := duration(text)):
        raise typer.BadParameter(f"{text!r} is no time at all: write 30s, 5m, 1h30m or 35d")
    return time


def age(text: str) -> timedelta:
    """Read how old something must be to be deleted: seconds may have been meant for days."""
    if re.fullmatch(r"\s*[\d.]+\s*", text, re.ASCII):
        raise typer.BadParameter(
            f"{text!r} has no unit: write {text.strip()}d for days, or h, m or s"
        )
    return some_time(text)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Job = Annotated[int, typer.Argument(metavar="ID", min=1, max=ID_MAX, help="The job's number.")]
Event = Annotated[
    int, typer.Argument(metavar="EVENT_ID", min=1, max=ID_MAX, help="The event's number.")
]
By = Annotated[str | None, typer.Option(help="Who asks; your login name unless given.")]
Why = Annotated[str, typer.Option("--why", "--reason", help="For those who come upon it later.")]
Force = Annotated[bool, typer.Option("--force", help="Make new jobs even where they exist.")]
Age = Annotated[
    timedelta | None,
    typer.Option(parser=age, metavar="AGE", help="Older than this, as 7d; else the setting's."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    for command in (show, replay, prune, migrate):
        app.command()(command)


def show(job: Job, *, json: Json = False) -> None:
    """Show a job, its event and every attempt, with secrets masked."""
    from reliq.cli.show import presentable, print_job  # noqa: PLC0415 - see the package's docstring

    async def work(desk: "Desk", settings: "Settings") -> "tuple[Row, Secrets]":
        return await desk.show_job(JobId(job)), _secrets(settings)

    document = presentable(*at_desk(work))
    if json:
        print_json(document)
    else:
        print_job(document)


def _secrets(settings: "Settings") -> "Secrets":
    """Return the App's names of secret fields; None where it does not load, and all may be."""
    from reliq.wiring.loading import load_app  # noqa: PLC0415 - see the package's docstring

    try:
        return load_app(settings).secrets
    except ConfigInvalid as error:
        typer.echo(f"reliq: {error.problems[0]}; so every value of the payload is masked", err=True)
        return None


def replay(event: Event, *, force: Force = False, json: Json = False) -> None:
    """Read a stored event again with today's code; jobs that exist already are not doubled."""
    from reliq.wiring.loading import load_app, sealing  # noqa: PLC0415 - see the package's docstring

    async def work(desk: "Desk", settings: "Settings") -> "list[Row]":
        app = load_app(settings)
        age_max = None if force else settings.keep_keys
        delivery = await desk.delivery(EventId(event), age_max=age_max)
        parsed = _read_again(app, event, delivery)
        return await desk.replay_event(
            delivery, EventId(event), dedup_key=parsed.dedup_key, jobs=parsed.jobs,
            key_ttl=settings.keep_keys, force=force, sealing=sealing(settings, app),
        )  # fmt: skip

    rows = at_desk(work)
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
    parsed = parse(source, delivery, app.checked)
    if parsed.error is not None:
        said = printable(scrub(parsed.error))
        raise RequestRefused(f"event {event} cannot be read: {said}; nothing was written")
    return parsed


def prune(
    *,
    jobs: Age = None,
    cancelled: Age = None,
    dead: Age = None,
    ignored: Age = None,
    bodies: Age = None,
    json: Json = False,
) -> None:
    """
    Delete what is older than it must be kept: jobs, keys, effects, bodies of events.

    Dead letters, and bodies that could not be read, have an age of their own, and so have those
    of them that were ignored. Workers do the same by themselves, unless RELIQ_PRUNE is off. An age
    that is given is for the kinds of which the App says nothing.
    """
    from reliq.wiring.loading import load_app  # noqa: PLC0415 - see the package's docstring

    given = {"keep_jobs": jobs, "keep_cancelled": cancelled, "keep_dead": dead,
             "keep_ignored": ignored, "keep_bodies": bodies}  # fmt: skip

    async def work(desk: "Desk", settings: "Settings") -> "Mapping[str, int]":
        ages = {name: age for name, age in given.items() if age is not None}
        return await desk.prune(settings.model_copy(update=ages).keeps(load_app(settings).keep))

    pruned = at_desk(work)
    if json:
        print_json(pruned)
        return
    typer.echo(
        f"deleted {plural(pruned['jobs'], 'finished job')}, {plural(pruned['keys'], 'expired key')}"
        f", {plural(pruned['effects'], 'old effect')} and {plural(pruned['reports'], 'old report')}, emptied the bodies of {plural(pruned['bodies'], 'event')}"
    )


def migrate() -> None:
    """Bring the tables to the version this reliq needs; any number may run at once."""
    import anyio  # noqa: PLC0415 - see the package's docstring

    from reliq.postgres.migrate import migrate as bring_up  # noqa: PLC0415 - see the package's docstring
    from reliq.wiring.loading import loaded  # noqa: PLC0415 - see the package's docstring

    applied = anyio.run(bring_up, loaded().dsn)
    typer.echo(f"applied {', '.join(applied)}" if applied else "the schema is current")


def login() -> str:
    """Name the person at the keyboard."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run under a number without a name
        return f"uid {os.getuid()}"


def rate(text: str) -> float:
    """Read how many a second, from `5/s`, `30/m` or `100/h`."""
    found = _RATE.fullmatch(text)
    rate = float(found[1]) / _UNITS_S[found[2] or "s"] if found else 0
    if not 0 < rate <= _RATE_MAX:
        raise typer.BadParameter(
            f"{text!r} is no rate: write 5/s, 30/m or 100/h, at most 1000000/s"
        )
    return rate


_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?", re.ASCII)
_RATE_MAX: Final = 1_000_000
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600}


def at_desk(work: "Callable[[Desk, Settings], Awaitable[T]]") -> T:
    """Load the settings, open the desk, do one piece of work at it."""
    import anyio  # noqa: PLC0415 - see the package's docstring

    from reliq.wiring.loading import loaded  # noqa: PLC0415 - see the package's docstring
    from reliq.wiring.stores import desk  # noqa: PLC0415

    settings = loaded()

    async def inside() -> T:
        async with desk(settings) as opened:
            return await work(opened, settings)

    return anyio.run(inside)
