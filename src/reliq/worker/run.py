"""
The worker, from top to bottom: claim into free places, run, settle, stop.

Everything that lives lives in one task group. The claim loop hands each claimed job to a task
that runs it and passes its ending on to the settler. Stopping goes in three steps: no claim
any more; what runs may end within the grace; what is left is cancelled and handed back.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import anyio
import structlog

from reliq.app import App
from reliq.domain.job import Claim
from reliq.domain.outcome import Ending, Stopped, settle
from reliq.domain.retry import RetryPolicy
from reliq.errors import StoreError
from reliq.ports import Queue
from reliq.worker.hand import Attempt, Cut, Hand, now_s
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
    wakeup: Wakeup
    retry: RetryPolicy
    grace: timedelta
    dice: random.Random
    abandon: Callable[[], None]
    stop: anyio.Event = field(default_factory=anyio.Event)
    stop_now: anyio.Event = field(default_factory=anyio.Event)
    _suspects: list[Attempt] = field(default_factory=list)
    _in_doubt: bool = False

    async def run(self) -> None:
        """Work until stopped; when it returns, everything is settled or handed back."""
        async with anyio.create_task_group() as attempts:
            async with anyio.create_task_group() as writing:
                writing.start_soon(self.settler.run)
                await self._claim_until_stopped(attempts)
                await self._drain()
                self.settler.close()
                writing.cancel_scope.deadline = anyio.current_time() + WRITE_S
            if self.places.taken:
                self.abandon()
            attempts.cancel_scope.cancel()

    async def _claim_until_stopped(self, attempts: anyio.abc.TaskGroup) -> None:
        while not self.stop.is_set():
            if self._suspects:
                await self._run_alone(self._suspects.pop(0), attempts)
                continue
            await self.places.some_free(or_when=self.stop)
            if self.stop.is_set():
                return
            asked, asked_at_s = self.places.free, now_s()
            try:
                if self._in_doubt:
                    await self._hand_back_unheard()
                    asked_at_s = now_s()
                claims = await self.queue.claim_jobs(asked)
            except StoreError:
                self._in_doubt = True  # the claim may have happened, and its answer was lost
                await self.wakeup.next(or_when=self.stop)
                continue
            self._dispatch(claims, asked_at_s, attempts)
            if len(claims) < asked:
                await self.wakeup.next(or_when=self.stop)

    def _dispatch(
        self, claims: Sequence[Claim], asked_at_s: float, attempts: anyio.abc.TaskGroup
    ) -> None:
        for attempt in self.hand.take(claims, asked_at_s):
            if attempt.claim.is_suspect:
                self._suspects.append(attempt)
            else:
                self.places.enter()
                attempts.start_soon(self._attempt, attempt)

    async def _run_alone(self, suspect: Attempt, attempts: anyio.abc.TaskGroup) -> None:
        """
        Run a job that lost its worker twice in a row with nothing beside it.

        If it takes this worker down too, it was the job, and only this job goes down with it.
        """
        await self.places.all_free(or_when=self.stop)
        if self.stop.is_set():
            self._suspects.insert(0, suspect)
            return
        try:
            is_ours = await self.queue.isolate_job(suspect.claim)
        except StoreError:
            is_ours = False
        if not is_ours or suspect.cut is not None:
            self._settle(suspect, Stopped())
            return
        log.warning("suspect.isolated", job_id=suspect.claim.job_id, kind=suspect.claim.kind)
        self.places.enter()
        attempts.start_soon(self._attempt, suspect)
        await self.places.all_free(or_when=self.stop)

    async def _attempt(self, attempt: Attempt) -> None:
        try:
            ending = await self.runner.run(attempt)
            if ending is None:
                self.hand.drop(attempt)
            else:
                self._settle(attempt, ending)
            if attempt.thread_ended is not None:
                await attempt.thread_ended.wait()
        finally:
            self.places.leave()

    def _settle(self, attempt: Attempt, ending: Ending) -> None:
        policy = self.app.handler(attempt.claim.kind).retry or self.retry
        settlement = settle(ending, attempt.claim, policy, self.dice.random())
        self.settler.settle(attempt, settlement)

    async def _hand_back_unheard(self) -> None:
        if jobs := await self.queue.hand_back_unheard(self.hand.heard()):
            log.warning("jobs.handed_back", job_ids=jobs, why="the reply to their claim was lost")
        self._in_doubt = False

    async def _drain(self) -> None:
        log.info("worker.draining", running=self.places.taken, grace_s=self.grace.total_seconds())
        for suspect in self._suspects:
            self._settle(suspect, Stopped())
        if self._in_doubt:
            with suppress(StoreError):
                await self._hand_back_unheard()
        with anyio.move_on_after(self.grace.total_seconds()):
            await self.places.all_free(or_when=self.stop_now)
        left = [attempt for attempt in self.hand.attempts() if not attempt.is_settling]
        if not left:
            return
        log.warning("worker.grace_over", job_ids=[attempt.claim.job_id for attempt in left])
        for attempt in left:
            attempt.stop(Cut.STOPPED)
        with anyio.move_on_after(CLEANUP_S):
            await self.places.all_free()
        for attempt in left:
            if not attempt.is_settling:
                self._settle(attempt, Stopped())
