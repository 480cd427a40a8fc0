"""The receiver's port on Postgres: store an event with its jobs, or find what it repeats."""

import json
from dataclasses import dataclass
from datetime import timedelta

import anyio
import asyncpg

from reliq.domain.event import Duplicate, Stored, storable_key
from reliq.domain.job import EventId
from reliq.domain.text import storable
from reliq.errors import StoreUnavailable
from reliq.ports import NewEvent
from reliq.postgres.enqueue import columns
from reliq.postgres.failures import translated
from reliq.postgres.migrate import why_not_current
from reliq.postgres.queries import query


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
        with translated(), anyio.fail_after(self.deadline.total_seconds()):
            row = await self.pool.fetchrow(query("store_event").text, *arguments)
        event_id = EventId(row["event_id"])
        return Duplicate(event_id) if row["duplicate"] else Stored(event_id, row["jobs"])

    async def why_not_ready(self) -> str | None:
        """Ask for the schema; None when it is the one this version needs."""
        try:
            with translated(), anyio.fail_after(self.deadline.total_seconds()):
                return await why_not_current(self.pool)
        except StoreUnavailable as error:
            return str(error)
