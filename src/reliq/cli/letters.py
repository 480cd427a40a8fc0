"""Dead letters at the operator's desk: list them, make new jobs from them, or leave them be."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from reliq.cli.desk import ID_MAX, By, Json, Why, at_desk, duration, given, login, rate
from reliq.cli.screen import plural, print_entry, print_json, words
from reliq.domain.job import EventId, JobId
from reliq.domain.redact import printable, scrub
from reliq.errors import RequestRefused

if TYPE_CHECKING:
    from reliq.postgres.desk import Desk, Row, Sort, Which
    from reliq.settings import Settings


def _apart(text: str) -> timedelta:
    """Read a rate, as the time from one to the next."""
    return timedelta(seconds=1 / rate(text))


Job = Annotated[
    int | None, typer.Argument(metavar="[ID]", min=1, max=ID_MAX, help="The job's number.")
]
Kind = Annotated[
    str | None, typer.Option(parser=given, metavar="TEXT", help="Only jobs of this kind.")
]
Error = Annotated[
    str | None,
    typer.Option(
        parser=given,
        metavar="TEXT",
        help="Only errors with this fingerprint, or with this in them.",
    ),
]
Since = Annotated[
    timedelta | None,
    typer.Option(parser=duration, metavar="AGE", help="Only deaths since then, as 2h or 7d."),
]
Queue = Annotated[
    str | None, typer.Option(parser=given, metavar="TEXT", help="Only jobs of this queue.")
]
Reason = Annotated[
    str,
    typer.Option("--why", "--reason", parser=given, metavar="TEXT", help="Why it may be left."),
]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, newest first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Rate = Annotated[
    timedelta | None,
    typer.Option(parser=_apart, metavar="N/s", help="New jobs due per second (N/m, N/h)."),
]
EvenIgnored = Annotated[bool, typer.Option("--ignored", help="Also those that were ignored.")]
Ignored = Annotated[bool, typer.Option("--ignored", help="Those that were ignored instead.")]
All = Annotated[bool, typer.Option("--all", help="Also those made anew, and the ignored ones.")]
Event = Annotated[
    int | None,
    typer.Option(metavar="EVENT_ID", min=1, max=ID_MAX, help="A delivery that was not read."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    for command in (failed, retry, ignore):
        app.command()(command)


def failed(
    *,
    kind: Kind = None,
    error: Error = None,
    since: Since = None,
    queue: Queue = None,
    ignored: Ignored = False,
    everything: All = False,
    limit: Limit = 20,
    json: Json = False,
) -> None:
    """List what waits for a person: dead letters, and deliveries that could not be read."""
    if ignored and everything:
        raise typer.BadParameter("give --ignored or --all")
    sort: Sort = "all" if everything else "ignored" if ignored else "open"

    async def work(desk: "Desk", _: "Settings") -> "tuple[list[Row], list[Row]]":
        dead = await desk.list_dead(_which(kind, error, since, queue), sort, limit=limit)
        # A delivery that could not be read has no kind and no queue.
        read = kind or error or queue
        return dead, [] if read else await desk.list_unreadable(since, sort, limit=limit)

    dead, unreadable = at_desk(work)
    for row in (*dead, *unreadable):
        row["error"] = printable(scrub(row["error"] or ""))
    if json:
        print_json({"dead": dead, "unreadable": unreadable})
        return
    for row in dead:
        print_entry(_dead_letter(row) + _left(row), row["error"])
    for row in unreadable:
        came = f"event {row['id']} from {row['source']} came {words(row['received_at'])}"
        left = _left(row) or ": replay it once the code is mended"
        print_entry(f"{came}, unreadable{left}", row["error"])
    if not dead and not unreadable:
        typer.echo(
            "no dead letters" + (" that fit" if kind or error or since or queue or ignored else "")
        )
    if limit in {len(dead), len(unreadable)}:
        typer.echo(f"the newest {limit}: --limit shows more")


def _which(
    kind: str | None, error: str | None, since: timedelta | None, queue: str | None
) -> "Which":
    from reliq.postgres.desk import Which  # noqa: PLC0415 - see the package's docstring

    return Which(kind=kind, error=error, since=since, queue=queue)


def _dead_letter(row: "Row") -> str:
    status = "" if row["status"] is None else f", status {row['status']}"
    anew = "" if row["requeued_as"] is None else f", made anew as job {row['requeued_as']}"
    return (
        f"job {row['id']} {printable(row['kind'])} died {words(row['died_at'])}: "
        f"{row['reason']}, attempt {row['attempt']}{status}{anew}"
    )


def _left(row: "Row") -> str:
    if row["ignored_at"] is None:
        return ""
    who = f"{words(row['ignored_by'])} {words(row['ignored_at'])}"
    return f", ignored by {who}: {words(row['ignore_reason'])}"


def retry(
    job: Job = None,
    *,
    kind: Kind = None,
    error: Error = None,
    since: Since = None,
    queue: Queue = None,
    ignored: EvenIgnored = False,
    rate: Rate = None,
    dry_run: DryRun = False,
    by: By = None,
    reason: Why = "",
    json: Json = False,
) -> None:
    """
    Make a new job from a dead letter and print its number, or from all of a filter.

    At most one per dead letter, whoever asks how often.
    """
    who = by or login()
    apart = rate or timedelta(0)
    _one_or_filter(job, kind, error, since, queue)
    if job is not None:
        new, fresh = at_desk(
            lambda desk, _: desk.requeue_job(
                JobId(job), by=who, reason=reason, even_ignored=ignored
            )
        )
        typer.echo(new)
        said = f"job {new} is made from dead letter {job}"
        typer.echo(said if fresh else f"{said} already: nothing is new", err=True)
        return

    async def work(desk: "Desk", _: "Settings") -> "tuple[list[Row], list[Row]]":
        which = _which(kind, error, since, queue)
        found = await desk.find_open_dead(which, even_ignored=ignored)
        if dry_run:
            return found, []
        return found, await desk.requeue_jobs(
            [row["id"] for row in found], by=who, reason=reason, apart=apart, even_ignored=ignored
        )

    found, made = at_desk(work)
    if json:
        print_json({"dry_run": dry_run, "found": _sorts(found), "jobs": made})
        return
    _print_sorts(found)
    if dry_run:
        typer.echo(f"{plural(len(found), 'new job')} would be made")
        return
    new = sum(row["fresh"] for row in made)
    over = f", due over the next {words(_whole(apart * len(found)))}" if apart else ""
    others = f"; {len(found) - new} had one by then" if new < len(found) else ""
    typer.echo(f"{plural(new, 'new job')}{over}{others}")


def ignore(
    job: Job = None,
    *,
    why: Reason,
    event: Event = None,
    kind: Kind = None,
    error: Error = None,
    since: Since = None,
    queue: Queue = None,
    dry_run: DryRun = False,
    by: By = None,
) -> None:
    """Note that a dead letter was looked at and stays dead, or all of a filter, or a delivery."""
    who = by or login()
    if event is not None:
        before = at_desk(lambda desk, _: desk.ignore_event(EventId(event), by=who, reason=why))
        typer.echo(f"event {event} is ignored" + (f" already, by {before}" if before else ""))
        return
    _one_or_filter(job, kind, error, since, queue)

    async def work(desk: "Desk", _: "Settings") -> "tuple[list[Row], list[Row]]":
        if job is not None:
            return [], [] if dry_run else await desk.ignore_jobs([JobId(job)], by=who, reason=why)
        which = _which(kind, error, since, queue)
        found = await desk.find_open_dead(which, even_ignored=False)
        ids = [row["id"] for row in found]
        return found, [] if dry_run else await desk.ignore_jobs(ids, by=who, reason=why)

    found, noted = at_desk(work)
    if job is not None and not dry_run:
        typer.echo(_noted(job, noted))
        return
    _print_sorts(found)
    count = len(found) if dry_run else sum(row["fresh"] for row in noted)
    typer.echo(f"{plural(count, 'dead letter')} {'would be' if dry_run else 'now'} ignored")


def _noted(job: int, rows: "Sequence[Row]") -> str:
    if not rows:
        raise RequestRefused(f"there is no dead letter {job}")
    [row] = rows
    if row["job_id"] is not None:
        raise RequestRefused(f"job {job} was made anew as job {row['job_id']}")
    already = "" if row["fresh"] else f" already, by {words(row['ignored'])}"
    return f"dead letter {job} is ignored{already}"


def _one_or_filter(job: int | None, *filters: object) -> None:
    if (job is None) == all(each is None for each in filters):
        raise typer.BadParameter(
            "give a job's number, or some of --kind, --error, --since and --queue"
        )


def _sorts(rows: "Sequence[Row]") -> "list[Row]":
    """Group dead letters by kind and error, the most frequent first, each with the newest text."""
    texts = {(row["kind"], row["fingerprint"]): row["error"] for row in rows}
    counts = Counter((row["kind"], row["fingerprint"]) for row in rows)
    return [
        {"kind": kind, "fingerprint": fingerprint, "count": count,
         "error": printable(scrub(texts[kind, fingerprint] or ""))}
        for (kind, fingerprint), count in counts.most_common()
    ]  # fmt: skip


def _print_sorts(rows: "Sequence[Row]") -> None:
    for sort in _sorts(rows):
        name = f", fingerprint {sort['fingerprint']}" if sort["fingerprint"] else ""
        print_entry(f"{sort['count']} of {printable(sort['kind'])}{name}", sort["error"])


def _whole(span: timedelta) -> timedelta:
    return timedelta(seconds=round(span.total_seconds()))
