"""The receiver's port on Postgres: store an event with its jobs, or find what it repeats."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import anyio
import asyncpg

from reliq.domain.event import Duplicate, Stored, storable_key
from reliq.domain.job import EventId
from reliq.domain.text import storable
from reliq.errors import StoreError
from reliq.ports import NewEvent
from reliq.postgres.enqueue import columns
from reliq.postgres.failures import translated
from reliq.postgres.migrate import why_not_current
from reliq.postgres.pool import Connection
from reliq.postgres.queries import query

CALL_OFF_S: Final = 1.0
"""Seconds a statement that was given up has to end on the server, before its connection goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresInbox:
    """Fits `ports.Inbox`. `deadline` bounds each call, waiting for a connection included."""

    pool: asyncpg.Pool
    deadline: timedelta
    key_ttl: timedelta

    async def store_event(self, event: NewEvent) -> Stored | Duplicate:
        """Commit the event with all its jobs in one statement; it always answers."""
        arguments = (
            event.source,
            None if event.dedup_key is None else storable_key(event.dedup_key),
            json.dumps({name: storable(value) for name, value in event.headers.items()}),
            event.body,
            None if event.parse_error is None else storable(event.parse_error),
            self.key_ttl,
            *columns(event.jobs),
        )
        async with self._connection() as connection:
            [row] = await connection.fetch(query("store_event").text, *arguments)
        event_id = EventId(row["event_id"])
        return Duplicate(event_id) if row["duplicate"] else Stored(event_id, row["jobs"])

    async def why_not_ready(self) -> str | None:
        """Ask for the schema; None when it is the one this version needs."""
        try:
            async with self._connection() as connection:
                return await why_not_current(connection)
        except StoreError as error:
            return str(error)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        """
        Borrow a connection for a block that ends within the deadline, whatever the server does.

        A block that is cut off does not wait for its connection: the pool's own task asks the
        server to cancel the statement, which frees its locks, and a server that does not
        answer that loses the connection. Without this bound a frozen server would hold every
        connection of the pool for as long as the pool's own deadline is.
        """
        with translated(), anyio.fail_after(self.deadline.total_seconds()):
            connection = await self.pool.acquire()
            try:
                yield connection
            except asyncio.CancelledError:
                asyncio.get_running_loop().call_later(CALL_OFF_S, _drop, connection)
                raise
            finally:
                await self.pool.release(connection)


def _drop(connection: asyncpg.pool.PoolConnectionProxy) -> None:
    with suppress(asyncpg.InterfaceError):  # it went back to the pool in good order
        connection.terminate()
