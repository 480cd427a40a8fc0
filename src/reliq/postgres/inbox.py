"""The receiver's port on Postgres: store an event with its jobs, or find what it repeats."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

import anyio
import asyncpg

from reliq.domain.event import Duplicate, Stored, storable_key
from reliq.domain.job import EventId
from reliq.domain.sealed import Sealer
from reliq.domain.text import storable
from reliq.errors import StoreError
from reliq.ports import NewEvent
from reliq.postgres.enqueue import columns
from reliq.postgres.failures import translated
from reliq.postgres.groups import Groups, Row
from reliq.postgres.migrate import why_not_current
from reliq.postgres.pool import Connection
from reliq.postgres.queries import query

CALL_OFF_S: Final = 1.0
"""Seconds a statement that was given up has to end on the server, before its connection goes."""


GROUP_PATIENCE: Final = timedelta(milliseconds=100)
"""Longer than another receiver takes to commit what it has locked."""

GROUPED_BYTES: Final = 64 * 1024
"""A larger body goes by itself: it is more work than a commit."""


@dataclass(slots=True, kw_only=True)
class PostgresInbox:
    """
    Fits `ports.Inbox`. `deadline` bounds each call, waiting for a connection included.

    Events that come at once are committed in groups, on connections of `grouped`, which wait
    for locks for GROUP_PATIENCE at most: who has to wait longer is asked to come again. One with
    a job that has a key or a group of its own is not: that may be locked by anybody's transaction.
    Without `grouped` none is.
    """

    pool: asyncpg.Pool
    grouped: asyncpg.Pool | None
    deadline: timedelta
    key_ttl: timedelta
    sealing: Sealer | None = None
    _groups: Groups = field(init=False)

    def __post_init__(self) -> None:
        self._groups = Groups(partial(self._store, self.grouped or self.pool))

    async def store_event(self, event: NewEvent) -> Stored | Duplicate:
        """Commit the event with all its jobs; it always answers."""
        arguments = (
            event.source,
            None if event.dedup_key is None else storable_key(event.dedup_key),
            json.dumps({name: storable(value) for name, value in event.headers.items()}),
            event.body,
            None if event.parse_error is None else storable(event.parse_error),
            self.key_ttl,
            *columns(event.jobs, self.sealing),
        )
        grouped = None if _may_take_long(event) else self.grouped
        with self._in_time():
            row = None if grouped is None else await self._groups.store(arguments)
            if row is None:
                [row] = await self._store(grouped or self.pool, [arguments])
        event_id = EventId(row["event_id"])
        return Duplicate(event_id) if row["duplicate"] else Stored(event_id, row["jobs"])

    async def _store(self, pool: asyncpg.Pool, events: Sequence[Row]) -> list[asyncpg.Record]:
        """Commit some events, one statement each, in one transaction."""
        async with _connection(pool) as connection:
            rows: list[asyncpg.Record] = await connection.fetchmany(
                query("store_event").text, events
            )
        return rows

    async def why_not_ready(self) -> str | None:
        """Ask for the schema; None when it is the one this version needs."""
        try:
            with self._in_time():
                async with _connection(self.pool) as connection:
                    return await why_not_current(connection)
        except StoreError as error:
            return str(error)

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        with translated(), anyio.fail_after(self.deadline.total_seconds()):
            yield


def _may_take_long(event: NewEvent) -> bool:
    return len(event.body) > GROUPED_BYTES or any(
        job.key is not None or job.group_key is not None for job in event.jobs
    )


@asynccontextmanager
async def _connection(pool: asyncpg.Pool) -> AsyncIterator[Connection]:
    """
    Borrow a connection for a block that may be cut off, whatever the server does.

    A block that is cut off does not wait for its connection: the pool's own task asks the
    server to cancel the statement, which frees its locks, and a server that does not
    answer that loses the connection. Without this bound a frozen server would hold every
    connection of the pool for as long as the pool's own deadline is.
    """
    connection = await pool.acquire()
    try:
        yield connection
    except asyncio.CancelledError:
        asyncio.get_running_loop().call_later(CALL_OFF_S, _drop, connection)
        raise
    finally:
        await pool.release(connection)


def _drop(connection: asyncpg.pool.PoolConnectionProxy) -> None:
    with suppress(asyncpg.InterfaceError):  # it went back to the pool in good order
        connection.terminate()
