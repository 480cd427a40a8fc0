"""Limits and pauses of queues, from the command line."""

import shlex
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from reliq.cli.desk import By, Json, Why, at_desk, duration, login, some_time
from reliq.cli.desk import rate as per_second
from reliq.cli.screen import print_json, print_table, words

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
Kind = Annotated[bool, typer.Option("--kind", help="NAME is a kind, not a queue.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the queue, or of the kind.")]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Of the queues, or of the kinds.")
]
Queues = Annotated[
    list[str] | None,
    typer.Argument(metavar="[QUEUE...]", help="The queues; all that are known, unless given."),
]
Within = Annotated[
    timedelta | None,
    typer.Option(parser=duration, metavar="TIME", help="Wait so long at most; else to the end."),
]

HEEDED_S: Final = 2.0
"""After which every worker has read of a pause: they look once a second, before they claim."""

LOOK_EVERY_S: Final = 0.5

TIME_IS_OVER: Final = 124


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    for command in (limit, limits, pause, resume, drain):
        app.command()(command)


def limit(
    queue: Queue,
    *,
    running: Annotated[
        int | None,
        typer.Option(min=0, max=10_000, help="Jobs of it at one time, over all workers."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(parser=per_second, metavar="RATE", help="Starts, as 10/s or 100/m."),
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="Starts at once after a rest; a second's, unless given."
        ),
    ] = None,
    opens_after: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Failures in a row that open its breaker.")
    ] = None,
    open_for: Annotated[
        timedelta | None,
        typer.Option(
            parser=some_time, metavar="TIME", help="How long it is open: 1m, unless given."
        ),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Lift all its limits.")] = False,
) -> None:
    """Limit a queue: how many of its jobs run, how fast they start, when to hold it; all anew."""
    given = any(value is not None for value in (running, rate, opens_after))
    if off == given:
        raise typer.BadParameter("give --running, --rate or --opens-after, or --off")

    async def work(desk: Any, _: object) -> None:
        from reliq.postgres.limits import OPEN_FOR, Limit, Limits  # noqa: PLC0415 - see the package's docstring

        if off:
            await Limits(desk.pool).lift(queue)
            return
        await Limits(desk.pool).impose(
            queue,
            Limit(
                running=running,
                rate=rate,
                burst=burst,
                opens_after=opens_after,
                open_for=open_for or OPEN_FOR,
            ),
        )

    at_desk(work)
    typer.echo(f"{queue} has no limits any more" if off else f"{queue} is limited, within a second")


def limits(*, json: Json = False) -> None:
    """List the queues that have limits or are paused, and paused kinds."""

    async def work(desk: Any, _: object) -> list[dict[str, Any]]:
        from reliq.postgres.limits import Limits  # noqa: PLC0415 - see the package's docstring

        return await Limits(desk.pool).show()

    rows = at_desk(work)
    if json:
        print_json({"limits": rows})
        return
    print_table(
        ("", "name", "running", "of", "rate/s", "breaker", "paused"),
        [
            (
                row["scope"], row["name"], row["running"], words(row["max_running"]),
                "" if row["rate"] is None else f"{row['rate']:g}", _breaker(row), _paused(row),
            )
            for row in rows
        ],
    )  # fmt: skip


def _breaker(row: dict[str, Any]) -> str:
    if row["opens_after"] is None:
        return ""
    if row["open_until"] is not None:
        return f"open until {words(row['open_until'])}"
    return f"closed, {row['failures']} of {row['opens_after']} failures"


def _paused(row: dict[str, Any]) -> str:
    if row["paused_at"] is None:
        return ""
    return f"{words(row['paused_at'])} by {row['paused_by']}: {row['pause_reason'] or 'no reason given'}"


def pause(name: Name, *, kind: Kind = False, by: By = None, why: Why = "") -> None:
    """Have no more jobs of a queue, or of a kind, claimed; what runs goes on."""

    async def work(desk: Any, _: object) -> None:
        from reliq.postgres.limits import Limits  # noqa: PLC0415 - see the package's docstring

        await Limits(desk.pool).pause(
            "kind" if kind else "queue", name, by=by or login(), reason=why
        )

    at_desk(work)
    typer.echo(f"{name} is paused, within a second; what runs goes on")


def resume(names: Names, *, kind: Kind = False) -> None:
    """Have jobs of paused queues, or kinds, claimed again."""

    async def work(desk: Any, _: object) -> None:
        from reliq.postgres.limits import Limits  # noqa: PLC0415 - see the package's docstring

        for name in names:
            await Limits(desk.pool).resume("kind" if kind else "queue", name)
            typer.echo(f"{name} is claimed again, within a second")

    at_desk(work)


def drain(
    queues: Queues = None, *, within: Within = None, by: By = None, why: Why = "drain"
) -> None:
    """
    Pause queues and wait until nothing of them runs; `reliq resume` ends it.

    Exits with 0 when nothing runs any more, and with 124 when the time of --within is over before
    that. They stay paused either way.
    """

    async def work(desk: Any, _: object) -> list[dict[str, Any]]:
        import anyio  # noqa: PLC0415 - see the package's docstring

        from reliq.postgres.limits import Limits  # noqa: PLC0415

        limits, told, paused = Limits(desk.pool), None, list[str]()
        began = anyio.current_time()
        quiet_from = began + HEEDED_S
        while True:
            if fresh := await limits.pause_all(queues or None, by=by or login(), reason=why):
                quiet_from = anyio.current_time() + HEEDED_S
                paused += fresh
                typer.echo(f"paused: {words(', '.join(fresh))}")
            running = await limits.find_running(queues or None)
            if running != told and running:
                typer.echo(f"running: {_running(running)}")
            told = running
            now = anyio.current_time()
            if not running and now >= quiet_from:
                break
            if running and within is not None and now - began >= within.total_seconds():
                break
            await anyio.sleep(LOOK_EVERY_S)
        if paused:
            typer.echo(f"to go on: reliq resume {shlex.join(paused)}")
        return running

    if running := at_desk(work):
        typer.echo(f"reliq: time is over, and still running: {_running(running)}", err=True)
        raise typer.Exit(TIME_IS_OVER)
    typer.echo("drained: nothing runs")


def _running(rows: list[dict[str, Any]]) -> str:
    return ", ".join(
        f"{words(row['kind'])} {row['jobs']} (job {row['first_id']}"
        f"{' and others' if row['jobs'] > 1 else ''} of {words(row['queue'])})"
        for row in rows
    )
