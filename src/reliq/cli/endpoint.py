"""Endpoints of outgoing webhooks, from the command line."""

import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import urlsplit

import typer

from reliq.cli.desk import By, Json, Why, at_desk, login
from reliq.cli.screen import print_json, print_table, words
from reliq.domain.endpoint import check_name, queue_of
from reliq.domain.redact import printable
from reliq.domain.signing import SECRET_BYTES, secret_of
from reliq.errors import PermanentError

if TYPE_CHECKING:
    from reliq.postgres.desk import Desk
    from reliq.postgres.endpoints import PostgresEndpoints, Row
    from reliq.settings import Settings

T = TypeVar("T")

endpoint = typer.Typer(
    help="Endpoints: where outgoing webhooks go.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _name(text: str) -> str:
    try:
        return check_name(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Name = Annotated[str, typer.Argument(metavar="NAME", parser=_name, help="Of the endpoint.")]
Url = Annotated[str, typer.Argument(metavar="URL", help="Its address, https://…")]
Force = Annotated[bool, typer.Option("--force", help="Also within a day of the last change.")]


@endpoint.command()
def add(name: Name, url: Url) -> None:
    """Add an endpoint, with a breaker and a limit of its queue; tell its secret, once."""
    from reliq.automations.webhook import check_target  # noqa: PLC0415 - see the package's docstring

    secret = secret_of(secrets.token_bytes(SECRET_BYTES))

    async def work(endpoints: "PostgresEndpoints", settings: "Settings") -> None:
        try:
            check_target(url, private=settings.webhook_private)
        except PermanentError as error:
            raise typer.BadParameter(str(error), param_hint="URL") from error
        await endpoints.add(name, url, secret)

    _at_endpoints(work)
    typer.echo(f"{name} is added; its secret, which is not shown again:")
    typer.echo(secret)


@endpoint.command("list")
def show(*, json: Json = False) -> None:
    """List endpoints, and what is wrong with them."""

    async def work(endpoints: "PostgresEndpoints", _: object) -> "list[Row]":
        return await endpoints.show()

    rows = [{**row, "url": _without_path(row["url"])} for row in _at_endpoints(work)]
    if json:
        print_json({"endpoints": rows})
        return
    print_table(
        ("name", "address", "since", "secret", "state"),
        [
            (
                row["name"], row["url"], words(row["created_at"]),
                "two of them sign" if row["rotating"] else "one signs", _state(row),
            )
            for row in rows
        ],
    )  # fmt: skip


@endpoint.command()
def rotate(name: Name, *, force: Force = False) -> None:
    """Sign with a new secret at once, and for a day with the old one too; tell the new one, once."""
    secret = secret_of(secrets.token_bytes(SECRET_BYTES))

    async def work(endpoints: "PostgresEndpoints", _: object) -> None:
        await endpoints.rotate(name, secret, force=force)

    _at_endpoints(work)
    typer.echo(
        f"{name} signs with another secret, and for 24 hours with the one before as well; it is not shown again:"
    )
    typer.echo(secret)


@endpoint.command()
def enable(name: Name) -> None:
    """Send to an endpoint again; `reliq retry --queue webhook:NAME` makes anew what died meanwhile."""

    async def work(endpoints: "PostgresEndpoints", _: object) -> None:
        await endpoints.switch(name, None)

    _at_endpoints(work)
    typer.echo(
        f"{name} is enabled; `reliq retry --queue {queue_of(name)}` makes its dead letters anew"
    )


@endpoint.command()
def disable(name: Name, *, by: By = None, why: Why = "") -> None:
    """Send to an endpoint no more: its jobs go to the dead letters. To hold them, pause its queue."""
    told = f"by {by or login()}" + (f": {why}" if why else "")

    async def work(endpoints: "PostgresEndpoints", _: object) -> None:
        await endpoints.switch(name, told)

    _at_endpoints(work)
    typer.echo(f"{name} is disabled {told}")


@endpoint.command()
def remove(name: Name) -> None:
    """Forget an endpoint, its secrets and the limits of its queue."""

    async def work(endpoints: "PostgresEndpoints", _: object) -> None:
        await endpoints.remove(name)

    _at_endpoints(work)
    typer.echo(f"{name} is removed")


def _at_endpoints(work: "Callable[[PostgresEndpoints, Settings], Awaitable[T]]") -> T:
    async def at(desk: "Desk", settings: "Settings") -> T:
        from reliq.postgres.endpoints import PostgresEndpoints, sealing_of  # noqa: PLC0415

        keys = settings.encryption_keys
        sealing = None if keys is None else sealing_of(keys.get_secret_value())
        return await work(PostgresEndpoints(desk.pool, sealing), settings)

    return at_desk(at)


def _state(row: "Row") -> str:
    if row["disabled_at"] is not None:
        return f"disabled {words(row['disabled_at'])}: {printable(row['disabled_why'])}"
    if row["failing_since"] is not None:
        return f"failing since {words(row['failing_since'])}, {row['failures']} attempts"
    return "well"


def _without_path(url: str) -> str:
    """Show where it is; paths and queries hold tokens."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"
