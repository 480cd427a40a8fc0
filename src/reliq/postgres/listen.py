"""
A hint that there is work: one tiny NOTIFY after commits, one LISTEN for each worker.

Only a hint: it is sent outside of the commit it tells of and may be lost on either side, and
the poll finds the job all the same. So nothing here delays a caller or fails it.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import SystemRandom
from typing import Final, Never

import anyio
import asyncpg
import structlog

from reliq.domain.retry import RetryPolicy
from reliq.domain.text import error_text
from reliq.errors import StoreError
from reliq.postgres.failures import translated
from reliq.postgres.pool import Database
from reliq.postgres.queries import query

CHANNEL: Final = "reliq_wake"

CANCEL: Final = "cancel"
"""The payload of a notification that a job is to be cancelled; of new jobs it is empty."""

EVERY_S: Final = 0.005
"""Rings closer together are one notification: each costs the server a lock on its queue."""

PING_S: Final = 10.0
"""A listener that is cut off hears nothing, as one hears nothing when there is nothing."""

DEADLINE_S: Final = 2.0
"""For a ping and for a notification."""

RECONNECT: Final = RetryPolicy(
    base=timedelta(milliseconds=200), cap=timedelta(seconds=10), jitter=0.5
)

log = structlog.get_logger()


@dataclass(slots=True)
class Bell:
    """
    Rings all workers: `ring` from anywhere in the event loop, while `run` runs as a task.

    It opens one connection of its own, on the first ring.
    """

    database: Database
    _rung: anyio.Event = field(default_factory=anyio.Event)
    _failures: int = 0

    def ring(self) -> None:
        """Ask for a notification soon; return at once, whatever the database does."""
        self._rung.set()

    async def run(self) -> Never:
        """Send notifications until cancelled; the rings of an outage come to one after it."""
        while True:
            await self._rung.wait()
            try:
                await self._serve()
            except StoreError:  # silent: whoever needs the database to go on says that it is away
                self._failures += 1
                self._rung.set()
                await _pause(self._failures)

    async def _serve(self) -> Never:
        connection = await self.database.connect("reliq bell")
        try:
            while True:
                await self._rung.wait()
                self._rung = anyio.Event()
                with translated():
                    await connection.fetch(query("ring_bell").text, timeout=DEADLINE_S)
                self._failures = 0
                await anyio.sleep(EVERY_S)
        finally:
            connection.terminate()


async def listen(
    database: Database, on_wake: Callable[[], None], on_cancel: Callable[[], None] = lambda: None
) -> Never:
    """
    Call `on_wake` for every notification, and once for every new connection, until cancelled.

    `on_cancel` is called instead for those that tell of a job to be cancelled.

    A notification that was sent while nobody listened is gone, hence the call after each
    (re)connect. `database` must lead to Postgres itself: a transaction pooler cannot LISTEN.
    """
    failures = 0
    while True:
        try:
            async with _listening(database, on_wake, on_cancel) as connection:
                failures = 0
                on_wake()
                on_cancel()
                await _until_lost(connection)
        except StoreError as error:
            if failures == 0:
                log.warning("wakeup.lost", error=error_text(error))
            failures += 1
            await _pause(failures)


@asynccontextmanager
async def _listening(
    database: Database, on_wake: Callable[[], None], on_cancel: Callable[[], None]
) -> AsyncIterator[asyncpg.Connection]:
    def heard(*notification: object) -> None:
        (on_cancel if notification[-1] == CANCEL else on_wake)()

    connection = await database.connect("reliq listen")
    try:
        with translated():
            await connection.add_listener(CHANNEL, heard)
        yield connection
    finally:
        connection.terminate()


async def _until_lost(connection: asyncpg.Connection) -> Never:
    """Ping until the connection is lost, and notice at once when the server says so itself."""
    closed = anyio.Event()
    connection.add_termination_listener(lambda _: closed.set())
    while True:
        with anyio.move_on_after(PING_S):
            await closed.wait()
        with translated():
            await connection.execute(query("tell_time").text, timeout=DEADLINE_S)


async def _pause(failures: int) -> None:
    await anyio.sleep(RECONNECT.delay(failures, SystemRandom().random()).total_seconds())
