"""Keys of what is sealed in the tables: change them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from reliq.cli.desk import at_desk
from reliq.cli.screen import plural
from reliq.domain.redact import printable
from reliq.errors import ConfigInvalid, RequestRefused

if TYPE_CHECKING:
    from reliq.postgres.desk import Desk
    from reliq.postgres.rekey import Rekeyed
    from reliq.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(rekey)


def rekey(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only count; exit with 1 if there is anything to do.")
    ] = False,
) -> None:
    """
    Seal with the newest key of RELIQ_ENCRYPTION_KEYS: payloads of jobs in any state, secrets of endpoints.

    Those that name another key, and those that hold a secret field in clear. Workers may run, and
    the command may be stopped and begun again. Exits with 0 when nothing is left, and older keys
    can go; with 1 when something is, and one line for each reason says what.
    """

    async def work(desk: "Desk", settings: "Settings") -> "tuple[str, Rekeyed, Rekeyed]":
        from reliq.postgres.endpoints import PostgresEndpoints, sealing_of  # noqa: PLC0415
        from reliq.postgres.rekey import rekey as seal_anew  # noqa: PLC0415 - see the package's docstring
        from reliq.wiring.loading import load_app, sealing  # noqa: PLC0415

        if (found := sealing(settings, load_app(settings))) is None:
            raise ConfigInvalid(["RELIQ_ENCRYPTION_KEYS is missing: there is no key to seal with"])
        payloads = await seal_anew(desk.pool, found, only_count=check)
        endpoints = PostgresEndpoints(desk.pool, sealing_of(found.keys))
        return found.newest, payloads, await endpoints.rekey(only_count=check)

    newest, payloads, secrets = at_desk(work)
    if not check:
        typer.echo(f"{plural(payloads.sealed, 'payload')} sealed anew, with key {newest}")
        if secrets.sealed:
            typer.echo(f"and the secrets of {plural(secrets.sealed, 'endpoint')}")
    if left := [*_left("payload", payloads, check=check), *_left("endpoint", secrets, check=check)]:
        raise RequestRefused("; ".join(left))
    typer.echo(f"all that is sealed names key {newest}, and no secret field is in clear")


def _left(what: str, done: "Rekeyed", *, check: bool) -> Iterator[str]:
    for why, count in done.lost.items():
        yield f"{plural(count, what)}: {printable(why)}"
    if done.left:
        how = "to be sealed anew: run `reliq rekey`" if check else "held by somebody: run it again"
        yield f"{plural(done.left, what)} {how}"
