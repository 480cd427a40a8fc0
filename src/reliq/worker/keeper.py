"""
Keep the leases of all jobs in hand, and stop a handler whose lease cannot be kept.

Renewals go out in one statement per worker, for leases older than a third, so that a short job
never pays for one; one renewal may go unanswered, or several be refused, before a lease ends.
Whether the database says "lost", is away or is silent, a handler is stopped before another
worker can claim its job: the moment is computed from before the claim or renewal was sent.

A renewal also tells which jobs are to be cancelled. Their handlers are stopped, and their leases left
to end: a handler that has not stopped by then is abandoned, and the reaper cancels its job.
"""

from dataclasses import dataclass

import anyio
import structlog

from reliq.errors import StoreError
from reliq.ports import Leases
from reliq.worker.hand import Attempt, Hand, now_s
from reliq.worker.lines import abandoned, lease_lost

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Runs in the second loop; `lease_s` in seconds."""

    hand: Hand
    leases: Leases
    lease_s: float

    async def run(self) -> None:
        """Renew and watch until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._renew_all)
            tasks.start_soon(self._watch)

    async def _renew_all(self) -> None:
        await self._renew([])  # opens the connection, which the first lease shall not wait for
        while True:
            await anyio.sleep(self.lease_s / 6)
            now = now_s()
            old = [
                attempt
                for attempt in self.hand.attempts()
                if now - attempt.renewed_at_s >= self.lease_s / 3
                and (now < attempt.time_up_s or attempt.is_settling)
            ]
            if old:
                await self._renew(old)

    async def _renew(self, attempts: list[Attempt]) -> None:
        asked_at_s = now_s()
        kept = None
        try:
            with anyio.move_on_after(self.lease_s / 3):
                kept = await self.leases.renew_leases([attempt.claim.held for attempt in attempts])
        except StoreError as error:
            log.warning("leases.not_renewed", held=len(attempts), error=str(error))
            return
        if kept is None:
            log.warning("leases.not_renewed", held=len(attempts), error="no answer in time")
            return
        for attempt in attempts:
            is_cancelled = kept.get(attempt.claim.job_id)
            if is_cancelled is None:
                self._lose(attempt, "renewal refused")
            elif is_cancelled:
                self.hand.cancel(attempt)
            else:
                self.hand.renewed(attempt, asked_at_s)

    async def _watch(self) -> None:
        tick_s = self.lease_s / 30
        while True:
            await anyio.sleep(tick_s)
            for attempt in self.hand.attempts():
                if now_s() + tick_s >= attempt.lease_until_s:
                    self._lose(attempt, "not renewed in time")

    def _lose(self, attempt: Attempt, why: str) -> None:
        if attempt.is_settling:  # the settlement is on its way and will say how it went
            self.hand.drop([attempt])
            return
        if attempt.is_cancelled:
            abandoned(attempt)
        lease_lost(attempt, why)
        self.hand.lose(attempt)
