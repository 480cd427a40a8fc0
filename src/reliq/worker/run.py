"""
The worker, from top to bottom: claim into free places, run, settle, stop.

Everything that lives lives in one task group. The claim loop hands each claimed job to a task
that runs it and passes its ending on to the settler. Stopping goes in three steps: no claim
any more; what runs may end within the grace; what is left is cancelled and handed back.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

import anyio
import structlog

from reliq.app import App
from reliq.domain.job import Claim
from reliq.domain.outcome import Bury, Ending, Raised, Requeue, Stopped, settle
from reliq.domain.redact import hide
from reliq.domain.retry import RetryPolicy
from reliq.errors import StoreError
from reliq.ports import Queue
from reliq.worker.crew import Crew
from reliq.worker.deadlines import Deadlines
from reliq.worker.hand import Attempt, Cut, Hand, now_s
from reliq.worker.lines import abandoned
from reliq.worker.places import Places
from reliq.worker.runner import Runner
from reliq.worker.settler import Settler
from reliq.worker.wakeup import Wakeup

log = structlog.get_logger()

CLEANUP_S: Final = 2.0
"""For cancelled handlers to clean up before their jobs are handed back regardless."""

WRITE_S: Final = 10.0
"""For the last settlements to be written, when the database is away while we stop."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """
    One incarnation of a worker; wiring makes the parts.

    `stop` is set by the first signal, `stop_now` by the second. `abandon` ends the process
    when a handler that will not be cancelled is all that is left: its job is handed back.
    """

    app: App
    queue: Queue
    hand: Hand
    places: Places
    runner: Runner
    settler: Settler
    deadlines: Deadlines
    wakeup: Wakeup
    retry: RetryPolicy
    grace: timedelta
    dice: random.Random
    abandon: Callable[[], None]
    stop: anyio.Event = field(default_factory=anyio.Event)
    stop_now: anyio.Event = field(default_factory=anyio.Event)
    _in_doubt: bool = False

    async def run(self) -> None:
        """Work until stopped; when it returns, everything is settled or handed back."""
        async with asyncio.TaskGroup() as attempts:
            crew = Crew(attempts, self._attempt)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.deadlines.run)
                async with anyio.create_task_group() as writing:
                    writing.start_soon(self.settler.run)
                    await self._claim_until_stopped(crew)
                    await self._drain()
                    self.settler.close()
                    writing.cancel_scope.deadline = anyio.current_time() + WRITE_S
                tasks.cancel_scope.cancel()
            if self.places.taken:
                self.abandon()
            crew.dismiss()

    async def _claim_until_stopped(self, crew: Crew) -> None:
        while not self.stop.is_set():
            await self.places.some_free(or_when=self.stop)
            if self.stop.is_set():
                return
            asked, asked_at_s = min(self.places.free, self.places.share), now_s()
            try:
                if self._in_doubt:
                    await self._hand_back_unheard()
                    asked_at_s = now_s()
                claims = await self.queue.claim_jobs(asked, self.places.rooms)
            except StoreError:
                self._in_doubt = True  # the claim may have happened, and its answer was lost
                await self.wakeup.next(or_when=self.stop)
                continue
            await self._dispatch(claims, asked_at_s, crew)
            if len(claims) < asked:
                await self.wakeup.next(or_when=self.stop)

    async def _dispatch(self, claims: Sequence[Claim], asked_at_s: float, crew: Crew) -> None:
        taken = self.hand.take(claims, asked_at_s)
        suspects = [attempt for attempt in taken if attempt.claim.is_suspect]
        for attempt in taken:
            if not attempt.claim.is_suspect:
                self._start(attempt, crew)
        if suspects:
            await self._run_alone(suspects, crew)

    def _start(self, attempt: Attempt, crew: Crew) -> None:
        self.places.enter(attempt.claim.queue)
        crew.start(attempt)

    async def _run_alone(self, suspects: Sequence[Attempt], crew: Crew) -> None:
        """
        Run one job that lost its worker twice in a row, with nothing beside it.

        If it takes this worker down too, it was the job, and only this job goes down with it:
        other suspects are given back first, because to be held here would cost them a lease.
        """
        suspect, *others = suspects
        is_ours = False
        try:
            await self._give_back(others)
            await self.places.all_ended(or_when=self.stop)
            if not self.stop.is_set():
                is_ours = await self.queue.isolate_job(suspect.claim)
        except StoreError as error:
            log.warning("suspect.not_isolated", error=str(error))
        if not is_ours or suspect.cut is not None:
            for attempt in suspects:
                if not attempt.is_settled:
                    self._settle(attempt, Stopped())
            return
        log.warning("suspect.isolated", job_id=suspect.claim.job_id, kind=suspect.claim.kind)
        self._start(suspect, crew)
        await self.places.all_ended(or_when=self.stop)

    async def _give_back(self, attempts: Sequence[Attempt]) -> None:
        back = Requeue(after=timedelta(0), ended="handed_back", spends=False)
        await self.queue.settle_jobs([(attempt.claim, back) for attempt in attempts])
        for attempt in attempts:
            attempt.is_settled = True
        self.hand.drop(attempts)

    async def _attempt(self, attempt: Attempt) -> bool:
        """Run an attempt; answer whether its task may run another."""
        is_fit = True
        try:
            ending = await self.runner.run(attempt)
        except Exception as error:  # noqa: BLE001 - a handler that broke our scopes
            ending, is_fit = Raised(error), False
        if ending is None:
            self.hand.drop([attempt])
        else:
            self._settle(attempt, ending)
        self.places.end()
        try:
            if attempt.thread_ended is not None:
                if attempt.cut is Cut.CANCELLED and not attempt.thread_ended.is_set():
                    abandoned(attempt)
                await attempt.thread_ended.wait()
        finally:
            self.places.leave(queue := attempt.claim.queue)
            if queue in self.places.rooms:
                self.wakeup.ring()  # a claim may have come short for want of this place
        return is_fit

    def _settle(self, attempt: Attempt, ending: Ending) -> None:
        policy = self.app.handler(attempt.claim.kind).retry or self.retry
        settlement = settle(ending, attempt.claim, policy, self.dice.random())
        if self.app.secrets and isinstance(settlement, Requeue | Bury) and settlement.error:
            error = hide(settlement.error, attempt.claim.payload_json, self.app.secrets)
            settlement = replace(settlement, error=error)
        self.settler.settle(attempt, settlement)

    async def _hand_back_unheard(self) -> None:
        if jobs := await self.queue.hand_back_unheard(self.hand.heard()):
            log.warning("jobs.handed_back", job_ids=jobs, why="the reply to their claim was lost")
        self._in_doubt = False

    async def _drain(self) -> None:
        log.info("worker.draining", running=self.places.running, grace_s=self.grace.total_seconds())
        if self._in_doubt:
            with suppress(StoreError):
                await self._hand_back_unheard()
        with anyio.move_on_after(self.grace.total_seconds()):
            await self.places.all_ended(or_when=self.stop_now)
        left = [attempt for attempt in self.hand.attempts() if not attempt.is_settling]
        if not left:
            return
        log.warning("worker.grace_over", job_ids=[attempt.claim.job_id for attempt in left])
        for attempt in left:
            attempt.stop(Cut.STOPPED)
        with anyio.move_on_after(CLEANUP_S):
            await self.places.all_ended()
        for attempt in left:
            if not attempt.is_settling:
                self._settle(attempt, Stopped())
