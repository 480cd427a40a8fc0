"""
Deliveries that come together are committed together: a commit costs as much as an event.

Nobody waits for company. While WRITERS groups are on their way the next one gathers, and who
came first writes for all of it. An error that one event may have brought on the others, a value
or a lock, parts the group: then each has to be written by itself, and holds up nobody else.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
import asyncpg

WRITERS: Final = 2
"""Groups on their way at once: while one waits for its commit, the other is worked on."""

GROUP_MAX: Final = 50

Row = tuple[object, ...]
"""The arguments of one event, source and dedup key first."""

_EVERYBODYS: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
)
"""Of the server's errors those about the server: to write again would be to write twice, or in vain."""


@dataclass(slots=True)
class Group:
    """Events of one transaction; in the end each has its answer, or all share an error."""

    rows: list[Row] = field(default_factory=list)
    answers: dict[int, asyncpg.Record] = field(default_factory=dict)
    error: Exception = field(default_factory=lambda: TimeoutError("nobody wrote it in time"))
    is_over: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True)
class Groups:
    """
    `write` takes rows in one transaction and returns one answer for each, or raises.

    It must not wait for locks for long: meanwhile a group more gathers behind it.
    """

    write: Callable[[Sequence[Row]], Awaitable[list[asyncpg.Record]]]
    _gathering: Group | None = None
    _turns: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(WRITERS))

    async def store(self, row: Row) -> asyncpg.Record | None:
        """
        Have an event written; None when it was not, and has to be by itself.

        The caller sets the deadline. Raises what `write` raises, and TimeoutError when the
        first of the group ran out of time.
        """
        group = self._gathering
        if group is None or len(group.rows) >= GROUP_MAX:
            group = self._gathering = Group()
        place = len(group.rows)
        group.rows.append(row)
        if place == 0:
            await self._lead(group)
        else:
            await group.is_over.wait()
        if place in group.answers:
            return group.answers[place]
        is_of_one = isinstance(group.error, asyncpg.PostgresError)
        if is_of_one and not isinstance(group.error, _EVERYBODYS):
            return None
        raise group.error

    async def _lead(self, group: Group) -> None:
        try:
            async with self._turns:
                self._close(group)
                # Keys are locked in their order, so that two groups cannot wait for each other.
                order = sorted(range(len(group.rows)), key=lambda n: _lock(group.rows[n]))
                answers = await self.write([group.rows[n] for n in order])
                group.answers.update(zip(order, answers, strict=True))
        except Exception as error:  # noqa: BLE001 - raised by each whom it concerns
            group.error = error
        finally:
            self._close(group)
            group.is_over.set()

    def _close(self, group: Group) -> None:
        if self._gathering is group:
            self._gathering = None


def _lock(row: Row) -> tuple[str, str]:
    source, key, *_ = row
    return str(source), str(key or "")
