"""
Run one attempt to its ending.

The ending is a value. A handler's exception, its time limit and a stop of the worker are all
endings; only a lost lease is none, because nothing may be written about it.
"""

import asyncio
import inspect
import traceback
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import PurePath
from typing import Any, Final, NamedTuple, cast

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from reliq.app import App, Run
from reliq.domain.fields import sort_of
from reliq.domain.outcome import (
    Again,
    Cancelled,
    Done,
    Ending,
    GiveUp,
    Outcome,
    Raised,
    Stopped,
    Succeed,
    TimedOut,
)
from reliq.domain.payload import PayloadModel
from reliq.domain.redact import hide
from reliq.domain.sealed import MARK
from reliq.domain.text import error_text, is_own
from reliq.errors import LeaseLost
from reliq.job import Job
from reliq.ports import Queue, Stores
from reliq.sealing import Sealing, opened
from reliq.worker import effects
from reliq.worker.hand import Attempt, Cut, now_s
from reliq.worker.isolation import CHILD, run_isolated
from reliq.worker.lines import (
    attempts_ended,
    raised_after_commit,
    result_after_commit,
    returned_no_outcome,
)

_DONE: Final = Done()

Answer = Outcome | Awaitable[Outcome | None] | None


class Known(NamedTuple):
    """A kind's handler, and what follows from it."""

    run: Run
    is_async: bool
    is_isolated: bool
    limit: timedelta
    limit_s: float
    model: PayloadModel | None


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
    sealing: Sealing | None = None
    """Opens what is sealed in a payload, for the handler and for whoever masks its errors."""
    stores: Stores | None = None
    child: Sequence[str] = CHILD
    """The command that runs an isolated handler."""
    _known: dict[str, "Known"] = field(default_factory=dict)
    """What it takes longer to find out than to run a small job."""
    _odd: set[str] = field(default_factory=set)
    """Kinds whose answers are no outcomes: it is said once."""

    async def run(self, attempt: Attempt) -> Ending | None:
        """
        Run the handler of a claimed job within its time.

        None when there is nothing to write: the lease was lost, or the handler's transaction
        settled the job. What a handler answers although it was told to stop still counts: the
        work is done.
        """
        known = self._known.get(attempt.claim.kind) or self._learn(attempt.claim.kind)
        attempt.time_up_s = now_s() + known.limit_s
        ending: Ending | None = None
        with attempt.scope:
            if attempt.cut is None:
                ending = await self._ending(known, attempt)
        attempt.ended_at_s = now_s()
        if attempt.no_outcome is not None and attempt.claim.kind not in self._odd:
            self._odd.add(attempt.claim.kind)
            returned_no_outcome(attempt)
        if isinstance(ending, Raised):
            attempt.where = attempt.where or where(ending.error)
        if attempt.is_settled:
            attempts_ended([(attempt, Succeed())])
            if isinstance(ending, Raised):
                said = error_text(ending.error)
                raised_after_commit(
                    attempt, hide(said, attempt.claim.payload_json, self.app.secrets)
                )
            elif isinstance(ending, Done) and ending.result is not None:
                result_after_commit(attempt)
            return None
        if attempt.cut is None and isinstance(ending, Outcome):
            return ending
        return _judged(attempt, ending, known.limit)

    def _learn(self, kind: str) -> "Known":
        handler = self.app.handler(kind)
        limit = handler.time_limit or self.time_limit
        is_async, limit_s = sort_of(handler.run) == "coroutine", limit.total_seconds()
        known = Known(handler.run, is_async, handler.isolated, limit, limit_s, handler.model)
        self._known[kind] = known
        return known

    async def _ending(self, known: "Known", attempt: Attempt) -> Ending:
        try:
            if MARK in attempt.claim.payload_json:
                attempt.claim = opened(attempt.claim, self.sealing)
            if known.is_isolated:
                return await run_isolated(self.child, attempt, known.limit)
            once = partial(effects.once, self.queue, attempt)
            job = Job.of(
                attempt.claim, partial(self._transaction, attempt), once, known.model,
                self.queue.fan_out, stores=self.stores,
            )  # fmt: skip
            answer = (
                known.run(job) if known.is_async else await self._in_thread(known.run, job, attempt)
            )
            if known.is_async or inspect.isawaitable(answer):
                answer = await cast("Awaitable[Outcome | None]", answer)
        except anyio.get_cancelled_exc_class() as error:
            if attempt.scope.cancel_called or anyio.current_effective_deadline() == float("-inf"):
                raise
            return Raised(error)  # the handler raised it by itself
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an ending
            return Raised(error)
        if isinstance(answer, Outcome):
            return answer
        odd: object = answer
        if odd is not None:
            attempt.no_outcome = type(odd).__name__
        return _DONE

    async def _in_thread(self, run: Run, job: Job, attempt: Attempt) -> Answer:
        """Run a plain function in a thread, which a time limit can only abandon."""
        loop, ended = asyncio.get_running_loop(), anyio.Event()

        def call() -> Answer:
            try:
                return run(job)
            finally:
                loop.call_soon_threadsafe(ended.set)

        attempt.thread_ended = ended
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self.limiter)

    @asynccontextmanager
    async def _transaction(self, attempt: Attempt, told: Sequence[str]) -> AsyncIterator[Any]:
        if attempt.is_settled:
            raise RuntimeError("job.transaction() settles the job: it can be used once an attempt")
        attempt.is_in_transaction = True
        try:
            async with self.queue.transaction(attempt.claim, told) as transaction:
                yield transaction
                attempt.is_settling = True
        except BaseException:
            attempt.is_settling = False
            raise
        finally:
            attempt.is_in_transaction = False
        attempt.is_settled = True


def _judged(attempt: Attempt, ending: Ending | None, limit: timedelta) -> Ending | None:
    """Set what the handler said against how it was stopped, if it was."""
    match attempt.cut, ending:
        case (Cut.LOST, _) | (_, Raised(LeaseLost())):
            return None
        case (Cut.STOPPED, Done() | Again() | GiveUp()) | (Cut.CANCELLED, Done()):
            return ending
        case Cut.STOPPED, _:
            return Stopped()
        case Cut.TIMED_OUT, _:
            return TimedOut(limit)
        case Cut.CANCELLED, _:
            return Cancelled()
        case _:
            return ending


def where(error: BaseException) -> str | None:
    """
    Name the line that raised, without the text of the error: the handler's own, if there is one.

    An error of a library is raised deep inside it; what a person looks for is the call.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [frame for frame in frames if is_own(frame[0].f_code.co_filename)]
    if not (found := own or frames):
        return None
    frame, line = found[-1]
    return f"{PurePath(frame.f_code.co_filename).name}:{line} in {frame.f_code.co_name}"
