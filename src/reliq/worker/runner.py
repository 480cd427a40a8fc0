"""
Run one attempt to its ending.

The ending is a value. A handler's exception, its time limit and a stop of the worker are all
endings; only a lost lease is none, because nothing may be written about it.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from reliq.app import App, Handler, Job, Run
from reliq.domain.outcome import Again, Done, Ending, GiveUp, Outcome, Raised, Stopped, TimedOut
from reliq.errors import LeaseLost
from reliq.ports import Queue
from reliq.worker.hand import Attempt, Cut, now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """
    Runs attempts, any number at a time; the caller counts places.

    `time_limit` is for kinds without their own. Threads are not limited here: a plain function
    keeps its place until its thread has really ended.
    """

    app: App
    queue: Queue
    time_limit: timedelta
    limiter: CapacityLimiter

    async def run(self, attempt: Attempt) -> Ending | None:
        """
        Run the handler of a claimed job within its time.

        None when there is nothing to write: the lease was lost, or the handler's transaction
        settled the job. What a handler answers although it was told to stop still counts: the
        work is done.
        """
        handler = self.app.handler(attempt.claim.kind)
        limit = handler.time_limit or self.time_limit
        attempt.renew_until_s = now_s() + limit.total_seconds()
        attempt.scope.deadline = anyio.current_time() + limit.total_seconds()
        ending: Ending | None = None
        with attempt.scope:
            if attempt.cut is None:
                ending = await self._ending(handler, attempt)
        if attempt.is_settled or attempt.cut is Cut.LOST:
            return None
        match ending:
            case Raised(LeaseLost()):
                return None
            case Done() | Again() | GiveUp() if attempt.cut is Cut.STOPPED:
                return ending
            case _ if attempt.cut is Cut.STOPPED:
                return Stopped()
            case _ if attempt.scope.cancel_called:
                return TimedOut(limit)
            case _:
                return ending

    async def _ending(self, handler: Handler, attempt: Attempt) -> Ending:
        try:
            job = Job.of(attempt.claim, partial(self._transaction, attempt))
            answer = await (self._in_loop if _is_async(handler.run) else self._in_thread)(
                handler.run, job, attempt
            )
        except anyio.get_cancelled_exc_class() as error:
            if attempt.scope.cancel_called or anyio.current_effective_deadline() == float("-inf"):
                raise
            return Raised(error)  # the handler raised it by itself
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an ending
            return Raised(error)
        return answer if isinstance(answer, Again | GiveUp) else Done()

    async def _in_loop(self, run: Run, job: Job, _: Attempt) -> Outcome | None:
        answer = run(job)
        return await answer if inspect.isawaitable(answer) else answer

    async def _in_thread(self, run: Run, job: Job, attempt: Attempt) -> Outcome | None:
        """Run a plain function in a thread, which a time limit can only abandon."""
        loop, ended = asyncio.get_running_loop(), anyio.Event()

        def call() -> Outcome | Awaitable[Outcome | None] | None:
            try:
                return run(job)
            finally:
                loop.call_soon_threadsafe(ended.set)

        attempt.thread_ended = ended
        answer = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self.limiter)
        return await answer if inspect.isawaitable(answer) else answer

    @asynccontextmanager
    async def _transaction(self, attempt: Attempt) -> AsyncIterator[Any]:
        try:
            async with self.queue.transaction(attempt.claim) as transaction:
                yield transaction
                attempt.is_settling = True
        except BaseException:
            attempt.is_settling = False
            raise
        attempt.is_settled = True


def _is_async(run: Run) -> bool:
    """Tell whether it is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(inspect.unwrap(run)) or inspect.iscoroutinefunction(
        getattr(run, "__call__", None)  # noqa: B004 - asked of instances, not of functions
    )
