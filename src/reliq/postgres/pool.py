"""
Open a pool of connections that hold the planner to the indexes.

A plan that was cached while a table was empty stays: an idle worker's claim would read the
whole table in sequence when a burst arrives. So every connection of the product runs with
`enable_seqscan = off`, and keeps the plan it has: planning the statement that stores an event
anew at every call costs as much as running it. A plan that reads in sequence all the same, as one
of a handler's own statements may, counts as so dear that Postgres would compile it: 118 ms where
0.07 would do, so `jit = off`. All are set here, once per connection; where a transaction pooler
stands between (`planner="role"`), nothing is prepared, and the first and the last are set by
`ALTER ROLE … SET`. `doctor` looks at the result.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Final, Literal

import anyio
import asyncpg

from reliq.postgres.failures import translated

Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy

CONNECT_S = 5.0
"""Seconds a connection may take to open: a paused server accepts and never answers."""

_PLANNER: Final = (
    "set enable_seqscan = off; set jit = off; set plan_cache_mode = force_generic_plan"
)

_OIDS_BUILT_IN: Final = 10_000
"""Types below are the same in every Postgres (`FirstGenbkiObjectId` in its `transam.h`)."""


class Session(asyncpg.Connection):
    """
    A connection that asks once per process what the array types it meets are made of.

    asyncpg asks once per connection, by a query that costs more than all of ours: after an
    outage, when every connection is new, that is what jobs and leases wait for.
    """

    _learned: ClassVar[dict[frozenset[int], Any]] = {}

    async def _introspect_types(self, typeoids: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - asyncpg's
        asked = frozenset(typeoids)
        if max(asked) >= _OIDS_BUILT_IN:
            return await super()._introspect_types(typeoids, timeout)  # type: ignore[misc]
        if asked not in self._learned:
            answer = await super()._introspect_types(typeoids, timeout)  # type: ignore[misc]
            self._learned[asked] = answer
        return self._learned[asked]


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """
    Where the database is and how to talk to it.

    `deadline_s` bounds every statement, by the client's clock. `prepared=False` is for a
    pooler that cannot keep prepared statements.
    """

    dsn: str
    deadline_s: float = 10.0
    prepared: bool = True
    planner: Literal["pool", "role"] = "pool"

    async def connect(self, application: str) -> asyncpg.Connection:
        """
        Open one connection of its own.

        Raises:
            StoreUnavailable: it did not open within `CONNECT_S`.

        """
        with translated():
            connection = await asyncpg.connect(
                self.dsn,
                connection_class=Session,
                timeout=CONNECT_S,
                command_timeout=self.deadline_s,
                statement_cache_size=100 if self.prepared else 0,
                server_settings={"application_name": application},
            )
            try:
                await self._prepare(connection)
            except BaseException:
                connection.terminate()
                raise
        return connection

    @asynccontextmanager
    async def pool(
        self, application: str, size: int, *, lock_timeout: timedelta = timedelta(0)
    ) -> AsyncIterator["asyncpg.Pool"]:
        """
        Open a pool of at most `size` connections, the first of them on first use.

        A statement that waits for a lock for longer than `lock_timeout` (0: as the role's setting says) fails; behind a
        transaction pooler, where a connection keeps no settings, it waits on.

        Closing it waits for nobody longer than a deadline: what runs is cut off.
        """
        pool = asyncpg.create_pool(
            self.dsn,
            connection_class=Session,
            min_size=0,
            max_size=size,
            timeout=CONNECT_S,
            command_timeout=self.deadline_s,
            statement_cache_size=100 if self.prepared else 0,
            max_inactive_connection_lifetime=300,
            init=partial(self._prepare, lock_timeout=lock_timeout),
            reset=_reset,
            server_settings={"application_name": application},
        )
        async with pool:
            try:
                yield pool
            finally:
                with anyio.move_on_after(2, shield=True):
                    await pool.close()
                pool.terminate()

    async def _prepare(
        self, connection: asyncpg.Connection, lock_timeout: timedelta = timedelta(0)
    ) -> None:
        if self.planner == "pool":
            words = _PLANNER
            if lock_timeout:
                words += f"; set lock_timeout = {round(lock_timeout.total_seconds() * 1000)}"
            await connection.execute(words)


async def _reset(connection: Connection) -> None:
    """Leave nothing to the next user, without the round trip asyncpg's own reset costs."""
    if connection.is_in_transaction():
        await connection.execute("rollback")


def check_not_ended(connection: Connection) -> None:
    """
    Make sure that what was lent to a handler is still in a transaction, at no cost.

    Raises:
        RuntimeError: a statement of the handler's has ended it, and began no other.

    """
    if not connection.is_in_transaction():
        raise RuntimeError(
            "the handler ended the transaction of job.transaction() by a statement of its own: what "
            "it rolled back is gone, what it committed stays without the job's success. The end of "
            "the block commits, and an exception rolls back"
        )
