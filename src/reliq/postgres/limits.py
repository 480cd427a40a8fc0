"""What an operator says about queues: limits, pauses, and their end."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import asyncpg

from reliq.errors import RequestRefused
from reliq.postgres.failures import translated
from reliq.postgres.queries import query

PLACES_MAX: Final = 10_000
RATE_MAX: Final = 1_000_000
OPEN_FOR: Final = timedelta(minutes=1)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """
    The limits of one queue; None: none of this sort.

    At most `running` jobs of it run at one time, over all workers; `rate` start in a second,
    after a rest `burst` at once, as many as in a second unless given. After `opens_after` failures in a row its breaker opens: nothing
    starts for `open_for`, then one job, whose end decides.
    """

    running: int | None = None
    rate: float | None = None
    burst: int | None = None
    opens_after: int | None = None
    open_for: timedelta = OPEN_FOR

    def __post_init__(self) -> None:
        if self.running is not None and not 0 <= self.running <= PLACES_MAX:
            raise ValueError(f"0 to {PLACES_MAX} jobs of a queue may run, not {self.running}")
        if self.rate is not None and not 0 < self.rate <= RATE_MAX:
            raise ValueError(f"a rate is 0 to {RATE_MAX:,} starts a second, not {self.rate}")
        if (self.burst is not None and self.burst < 1) or self.open_for <= timedelta(0):
            raise ValueError("burst counts from 1, and a breaker opens for more than no time")
        if self.opens_after is not None and self.opens_after < 1:
            raise ValueError(f"a breaker opens after 1 failure or more, not {self.opens_after}")


@dataclass(frozen=True, slots=True)
class Limits:
    """Impose, lift and show them; workers obey within a second."""

    pool: asyncpg.Pool

    async def impose(self, queue: str, limit: Limit) -> None:
        """Give a queue these limits instead of those it had."""
        await self._fetch(
            "set_limit", queue, limit.running, limit.rate, limit.burst, limit.opens_after,
            limit.open_for,
        )  # fmt: skip

    async def lift(self, queue: str) -> None:
        """
        Take all limits off a queue.

        Raises:
            RequestRefused: it has none.

        """
        if not await self._fetch("lift_limit", queue):
            raise RequestRefused(f"the queue {queue!r} has no limits: `reliq limits` lists them")

    async def pause(self, scope: str, name: str, *, by: str, reason: str) -> None:
        """Have nothing of a `queue` or `kind` claimed; what runs goes on."""
        await self._fetch("pause", scope, name, by, reason)

    async def resume(self, scope: str, name: str) -> None:
        """
        Have it claimed again.

        Raises:
            RequestRefused: it is not paused.

        """
        [row] = await self._fetch("resume", scope, name)
        if not row["resumed"]:
            raise RequestRefused(f"the {scope} {name!r} is not paused: `reliq limits` lists them")

    async def pause_all(self, queues: Sequence[str] | None, *, by: str, reason: str) -> list[str]:
        """Pause queues, or all that are known; name those that were not paused before."""
        rows = await self._fetch("pause_queues", queues, by, reason)
        return [row["name"] for row in rows]

    async def find_running(self, queues: Sequence[str] | None) -> list[Row]:
        """Count the jobs that run of these queues, or of all, by queue and kind."""
        return await self._fetch("find_running", queues)

    async def show(self) -> list[Row]:
        """List queues with limits or paused, and paused kinds."""
        return await self._fetch("list_limits")

    async def _fetch(self, name: str, *arguments: object) -> list[Row]:
        with translated():
            rows = await self.pool.fetch(query(name).text, *arguments)
        return [dict(row) for row in rows]
