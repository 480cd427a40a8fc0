"""
What happens on a beat, independent of handlers: reaping, slots, pruning, a look for what was left.

Every worker does all of it; the tables make sure that doing it twice does no harm.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import anyio
import structlog

from reliq.app import App
from reliq.domain.job import Inserted
from reliq.domain.slots import due_slots
from reliq.errors import StoreError
from reliq.ports import Pruner, Queue, Reaper, Slots

log = structlog.get_logger()

CHECK_EVERY_S: Final = 600.0
"""How often the reaper's mark is checked against all running jobs."""


async def every(
    beat_s: float,
    act: Callable[[], Awaitable[None]],
    *,
    dice: random.Random,
    after_outage_s: float = 0.0,
) -> None:
    """
    Act about every `beat_s` seconds, spread by a tenth, for ever.

    When the database was away the next act waits `after_outage_s` longer.
    """
    was_away = False
    while True:
        try:
            if was_away:
                await anyio.sleep(after_outage_s)
            await act()
            was_away = False
        except StoreError:
            was_away = True
        await anyio.sleep(beat_s * dice.uniform(0.9, 1.1))


@dataclass(slots=True, kw_only=True)
class Reaping:
    """Give ended leases back; the mark is checked at the first beat and every ten minutes."""

    reaper: Reaper
    _checked_at_s: float = float("-inf")

    async def __call__(self) -> None:
        """Do one bounded pass."""
        if anyio.current_time() - self._checked_at_s >= CHECK_EVERY_S:
            self._checked_at_s = anyio.current_time()
            with suppress(StoreError):  # it reads all that is kept, and must not stop the reaping
                await self.reaper.check_reaper()
        for reaped in await self.reaper.reap_jobs():
            log.warning("job.reaped", job_id=reaped.job_id, kind=reaped.kind, fence=reaped.fence)
            if reaped.dead:
                log.error(
                    "job.buried",
                    job_id=reaped.job_id,
                    kind=reaped.kind,
                    reason="lease lost",
                    alert_id=reaped.alert_id,
                )


@dataclass(slots=True, kw_only=True)
class Scheduling:
    """Enqueue the slots that are due; a slot's key lets one job through, whoever asks."""

    app: App
    slots: Slots
    beat: timedelta
    _made: set[str] = field(default_factory=set)

    async def __call__(self) -> None:
        """Ask the database for the time and enqueue what is due and not known to be made."""
        if not self.app.schedules:
            return
        now = await self.slots.database_now()
        due = {
            slot.key: self.app.checked(schedule.job(slot))
            for schedule in self.app.schedules
            for slot in due_slots(schedule, now=now, tolerance=self.beat * 3)
        }
        for key in due.keys() - self._made:
            made = await self.slots.enqueue_job(due[key])
            if isinstance(made, Inserted):
                log.info("slot.enqueued", slot=key, job_id=made.job_id)
        self._made = set(due)


@dataclass(slots=True, kw_only=True)
class Noticing:
    """Look after what nobody looks after: ties of ended jobs, and kinds without a handler."""

    queue: Queue
    _named: set[str] = field(default_factory=set)

    async def __call__(self) -> None:
        """Follow up what a worker that died has left, and warn about kinds not named before."""
        await self.queue.follow_up()
        unknown = await self.queue.find_unknown_kinds()
        if fresh := sorted(unknown.keys() - self._named):
            log.warning("kinds.unknown", kinds=fresh, hint="their jobs stay queued, unspent")
            self._named.update(fresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """Prune, one worker of all at a time: who takes the turn has it for `lasts`; None never does."""

    pruner: Pruner
    lasts: timedelta | None

    async def __call__(self) -> None:
        """Take the turn if it is free; stop well before it ends, and leave the rest to the next."""
        if self.lasts is None or not await self.pruner.take_turn(self.lasts):
            return
        with anyio.move_on_after(self.lasts.total_seconds() / 2):
            pruned = await self.pruner.prune()
            if any(pruned.values()):
                log.info("rows.pruned", **pruned)
