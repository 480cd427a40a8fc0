"""
Write how attempts ended: whatever has piled up goes out in one batch, one batch at a time.

While the database is away endings wait here, each for as long as its lease lasts; after that
the job is the reaper's, and writing about it is refused by the fence anyway.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import anyio
import structlog

from reliq.domain.job import Fence, JobId
from reliq.domain.outcome import Settlement
from reliq.errors import RequestRefused, StoreError
from reliq.ports import Queue, Settled
from reliq.worker.hand import Attempt, Hand, now_s
from reliq.worker.lines import attempts_ended, lease_lost

log = structlog.get_logger()

Item = tuple[Attempt, Settlement]


@dataclass(slots=True, kw_only=True)
class Settler:
    """`retry_s` is the pause before a batch that could not be written is tried again."""

    queue: Queue
    hand: Hand
    retry_s: float
    dice: random.Random
    _waiting: list[Item] = field(default_factory=list)
    _more: anyio.Event = field(default_factory=anyio.Event)
    _is_closed: bool = False
    _is_delayed: bool = False

    def settle(self, attempt: Attempt, settlement: Settlement) -> None:
        """Have a settlement written; returns at once."""
        attempt.is_settling = True
        self._waiting.append((attempt, settlement))
        self._more.set()

    async def run(self) -> None:
        """Write batches until closed and empty."""
        while self._waiting or not self._is_closed:
            if not self._waiting:
                await self._more.wait()
                self._more = anyio.Event()
                continue
            batch, self._waiting = self._waiting, []
            failed = await self._write(batch)
            if failed:
                self._waiting[:0] = failed
                await anyio.sleep(self.retry_s * self.dice.uniform(0.5, 1.5))

    def close(self) -> None:
        """Let `run` end once everything is written."""
        self._is_closed = True
        self._more.set()

    async def _write(self, batch: Sequence[Item]) -> list[Item]:
        """Write each sort of settlement on its own; return what must be tried again."""
        failed: list[Item] = []
        sorts: defaultdict[type[Settlement], list[Item]] = defaultdict(list)
        for item in self._in_time(batch):
            sorts[type(item[1])].append(item)
        for items in sorts.values():
            failed += await self._write_one_sort(items)
        return failed

    def _in_time(self, batch: Iterable[Item]) -> list[Item]:
        """Leave out what could not be written before its lease ended, or its job was reclaimed."""
        newest: dict[JobId, Fence] = {}
        for attempt, _ in batch:
            job_id, fence = attempt.claim.held
            newest[job_id] = max(fence, newest.get(job_id, fence))
        items, now = [], now_s()
        for attempt, settlement in batch:
            is_newest = newest[attempt.claim.job_id] == attempt.claim.fence
            if is_newest and now < attempt.lease_until_s:
                items.append((attempt, settlement))
            else:
                self.hand.drop([attempt])
                lease_lost(attempt, "not settled in time")
        return items

    async def _write_one_sort(self, items: list[Item]) -> list[Item]:
        try:
            settled = await self.queue.settle_jobs(
                [(attempt.claim, settlement) for attempt, settlement in items]
            )
        except RequestRefused as error:  # one of them holds what no table takes: not the others
            if len(items) > 1:
                return [left for item in items for left in await self._write_one_sort([item])]
            [(attempt, _)] = items
            log.error("settle.refused", job_id=attempt.claim.job_id, error=str(error))  # noqa: TRY400 - a traceback would quote the value
            self.hand.drop([attempt])
            return []
        except StoreError as error:
            if not self._is_delayed:  # once an outage
                log.warning("settle.delayed", jobs=len(items), error=str(error))
            self._is_delayed = True
            return items
        self._is_delayed = False
        self._note(items, settled)
        return []

    def _note(self, items: Sequence[Item], settled: Settled) -> None:
        for attempt, _ in items:
            attempt.is_settled = True
        self.hand.drop([attempt for attempt, _ in items])
        for attempt, _ in items:
            if attempt.claim.job_id in settled.lost:
                lease_lost(attempt, "settle refused")
        ended = [item for item in items if item[0].claim.job_id not in settled.lost]
        attempts_ended(ended, settled.alerts)
