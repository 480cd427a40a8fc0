"""Keeping house: what was kept for long enough goes, in bounded batches that no claim waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import anyio
import asyncpg

from reliq.domain.keep import Keeps
from reliq.postgres.failures import translated
from reliq.postgres.queries import query

PRUNE_BATCH: Final = 5_000
"""Rows of one statement: a transaction of its own, of a fraction of a second."""

PARTS_BATCH: Final = 100
"""Of reports: each is up to a quarter of a megabyte."""


@dataclass(frozen=True, slots=True)
class Pruner:
    """Fits `ports.Pruner`; `pause_s` is the rest between two batches, so that others come first."""

    pool: asyncpg.Pool
    keeps: Keeps
    pause_s: float = 0.0

    async def take_turn(self, lasts: timedelta) -> bool:
        """Ask whether to prune is ours now; then it is nobody else's for so long."""
        return bool(await self._fetch("take_turn", "prune", lasts))

    async def prune(self) -> Mapping[str, int]:
        """Delete jobs, effects, groups, families, reports, expired keys, empty bodies; count what went of each."""
        return {
            "jobs": await self._walk("prune_jobs", self.keeps.of_jobs()),
            "bodies": await self._walk("prune_bodies", self.keeps.of_bodies()),
            "keys": await self._drain("prune_keys"),
            "effects": await self._drain("prune_effects", self.keeps.effects),
            "groups": await self._drain("prune_groups"),
            "families": await self._drain("prune_parents", self.keeps.of_families()),
            "reports": await self._prune_reports(),
        }

    async def _prune_reports(self) -> int:
        """Delete reports as old as a job may get, their pieces first, which are large; give up dead ones."""
        age = self.keeps.of_families()
        await self._drain("give_up_reports", self.keeps.of_dead_letters())
        await self._drain("prune_report_parts", age, most=PARTS_BATCH)
        return await self._drain("prune_reports", age)

    async def _drain(self, name: str, *arguments: object, most: int = PRUNE_BATCH) -> int:
        pruned, last = 0, most
        while last >= most:
            [row] = await self._fetch(name, *arguments, most)
            last = row["pruned"]
            pruned += last
            await anyio.sleep(self.pause_s)
        return pruned

    async def _walk(self, name: str, ages: Sequence[object]) -> int:
        pruned = 0
        walked_to: int | None = 0
        while walked_to is not None:
            [row] = await self._fetch(name, walked_to, PRUNE_BATCH, *ages)
            pruned += row["pruned"]
            if (walked_to := row["walked_to"]) is not None:
                await anyio.sleep(self.pause_s)
        return pruned

    async def _fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        with translated():
            return await self.pool.fetch(query(name).text, *arguments)
