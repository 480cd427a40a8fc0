"""The database, as the settings describe it, and the operator's side of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from reliq.errors import SchemaMismatch
from reliq.postgres.desk import Desk
from reliq.postgres.endpoints import PostgresEndpoints
from reliq.postgres.migrate import why_not_current
from reliq.postgres.pool import Database
from reliq.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Fits `ports.Stores`."""

    endpoints: PostgresEndpoints


def database(settings: Settings) -> Database:
    """Say where the database is and how to talk to it."""
    return Database(
        dsn=settings.dsn,
        deadline_s=settings.statement_deadline.total_seconds(),
        prepared=settings.prepared,
        planner=settings.planner,
    )


def listening_post(settings: Settings) -> Database | None:
    """
    Say where LISTEN works; None where only a transaction pooler is known, and polling must do.

    Through that one a LISTEN is accepted, stays behind on somebody's connection, and hears nothing.
    """
    if settings.listen_url is not None:
        return replace(database(settings), dsn=settings.listen_url.get_secret_value())
    return database(settings) if settings.planner == "pool" else None


@asynccontextmanager
async def desk(settings: Settings) -> AsyncIterator[Desk]:
    """
    Open the operator's side of the database; its schema must be the one of this version.

    Raises:
        SchemaMismatch: it is not; the message says what to do.
        StoreUnavailable: the database did not answer.

    """
    async with database(settings).pool("reliq desk", size=1) as pool:
        if (why := await why_not_current(pool)) is not None:
            raise SchemaMismatch(why)
        yield Desk(pool)
