"""Cancel jobs: by their numbers, or all of a filter."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from reliq.cli.desk import ID_MAX, By, Json, Why, at_desk, duration, given, login
from reliq.cli.screen import plural, print_json
from reliq.domain.job import JobId, State
from reliq.errors import RequestRefused

if TYPE_CHECKING:
    from reliq.postgres.desk import Desk
    from reliq.settings import Settings

Jobs = Annotated[
    list[int] | None,
    typer.Argument(metavar="[ID...]", min=1, max=ID_MAX, help="The jobs' numbers."),
]
Kind = Annotated[
    str | None, typer.Option(parser=given, metavar="TEXT", help="Only jobs of this kind.")
]
Queue = Annotated[
    str | None, typer.Option(parser=given, metavar="TEXT", help="Only jobs of this queue.")
]
Group = Annotated[str | None, typer.Option(help="Only jobs of this group_key.")]
Since = Annotated[
    timedelta | None,
    typer.Option(parser=duration, metavar="AGE", help="Only jobs made since then, as 2h or 7d."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]

_CANCELLED: Final[Mapping[State | None, str]] = {
    State.CANCELLED: "is cancelled",
    State.RUNNING: "runs: its worker is told to stop it, and it will not run again",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(cancel)


def cancel(
    jobs: Jobs = None,
    *,
    kind: Kind = None,
    queue: Queue = None,
    group: Group = None,
    since: Since = None,
    dry_run: DryRun = False,
    by: By = None,
    why: Why = "",
    json: Json = False,
) -> None:
    """
    Cancel jobs: those that wait at once, those that run by telling their workers to stop.

    By their numbers, or all of a filter.
    """
    filtered = any(each is not None for each in (kind, queue, group))
    if bool(jobs) == filtered or (jobs and (dry_run or json or since is not None)):
        raise typer.BadParameter("give the jobs' numbers, or some of --kind, --queue and --group")
    who = by or login()
    if jobs:
        _cancel([JobId(job) for job in jobs], by=who, why=why)
        return

    async def work(desk: "Desk", _: "Settings") -> Mapping[State | None, int]:
        from reliq.postgres.cancel import Open, cancel_all  # noqa: PLC0415 - see the package's docstring

        which = Open(kind=kind, queue=queue, group_key=group, since=since)
        return await cancel_all(desk.pool, which, by=who, reason=why, only_count=dry_run)

    states = at_desk(work)
    waiting, running = states[State.CANCELLED], states[State.RUNNING]
    late = sum(states.values()) - waiting - running
    if json:
        print_json({"dry_run": dry_run, "cancelled": waiting, "running": running, "late": late})
        return
    would = "would be " if dry_run else ""
    typer.echo(f"{plural(waiting, 'job')} {would}cancelled")
    if running:
        typer.echo(f"{plural(running, 'job')} running: {would}told to stop, and not run again")
    if late:
        typer.echo(f"{plural(late, 'job')} ended by then")


def _cancel(ids: Sequence[JobId], *, by: str, why: str) -> None:
    states = at_desk(lambda desk, _: desk.cancel_jobs(ids, by=by, reason=why))
    for job, state in states.items():
        if state in _CANCELLED:
            typer.echo(f"job {job} {_CANCELLED[state]}")
    if late := {job: state for job, state in states.items() if state not in _CANCELLED}:
        said = [
            f"there is no job {job}" if state is None else f"job {job} is {state}: too late"
            for job, state in late.items()
        ]
        raise RequestRefused("; ".join(said))
