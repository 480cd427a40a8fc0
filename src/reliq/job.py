"""What a handler gets: one attempt at one job, and the effects it has outside."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, cast

from typing_extensions import TypeVar

from reliq.domain.family import Family, OnFailure
from reliq.domain.job import Claim, EventId, Fence, JobId, Kind, NewJob, Payload
from reliq.domain.payload import PayloadModel
from reliq.domain.text import result_json
from reliq.errors import PermanentError
from reliq.ports import Stores

NO_FENCE: Final = Fence(0)
"""Of a Job that nobody claimed."""

FanOut = Callable[[Any, JobId, Family], Awaitable[int]]
Data = TypeVar("Data", default=Any)
"""What the payload of a job is read into: the model of its kind."""


@dataclass(slots=True)
class Effect:
    """
    Something done outside, known by its key: what `job.once(key)` found out about it.

    `new`: it is yours to do. `unknown`: somebody else began, and came to an end without a word, or
    this job began, in an earlier attempt or in this one: ask the provider, repeat it under the
    same idempotency key, or give up. `done`: `result` is what was said of it then. `released`: you
    gave it back.
    """

    key: str
    found: Literal["new", "unknown", "done", "released"]
    result: Any
    _finish: Callable[[Any], Awaitable[None]] = field(repr=False)
    _release: Callable[[], Awaitable[None]] = field(repr=False)

    @property
    def is_new(self) -> bool:
        """Whether nobody has ever begun."""
        return self.found == "new"

    @property
    def is_unknown(self) -> bool:
        """Whether somebody has begun who never said how it ended."""
        return self.found == "unknown"

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.found == "done"

    async def done(self, result: Any = None) -> None:
        """
        Remember that it is done, and what came of it: JSON, and small.

        Raises:
            LeaseLost: the job is no longer ours, and nothing was written.
            StoreUnavailable: the database went away; it may or may not be remembered.
            ValueError: the result is not JSON.

        """
        self._check_open()
        await self._finish(result)
        self.found, self.result = "done", result

    async def release(self) -> None:
        """
        Give it back: it was certainly not done, for its provider refused it.

        Who asks next, this job or another, finds it new. One that was unknown stays so: what was
        refused is the repetition, and nobody knows of the time before.

        Raises:
            LeaseLost: the job is no longer ours, and nothing was written.
            StoreUnavailable: the database went away; it may or may not have been given back.

        """
        self._check_open()
        if self.is_new:
            await self._release()
            self.found = "released"

    def _check_open(self) -> None:
        if self.found in {"done", "released"}:
            raise RuntimeError(f"the effect {self.key!r} is {self.found} already")


Transaction = Callable[[Sequence[str]], AbstractAsyncContextManager[Any]]
"""Takes a list that holds, at the end, the JSON of a result, if there is one."""
Once = Callable[[str], Awaitable[Effect]]


@dataclass(slots=True)
class Job(Generic[Data]):
    """
    What a handler gets: one attempt at one job.

    `key` is the same at every attempt, after a takeover and after a requeue: pass it on to
    providers that take an idempotency key. `attempt` counts from 1. `data` is the payload in the
    model of the kind, `Job[OrderPaid]`; where the kind has none, the payload. `fence` grows with
    every claim: who is written to under a smaller one than he knows may refuse it.
    """

    id: JobId
    kind: Kind
    key: str
    payload: Payload
    attempt: int
    attempts_max: int
    event_id: EventId | None
    _transaction: Transaction = field(repr=False)
    _once: Once = field(repr=False)
    data: Data = field(default=cast("Any", None), repr=False)
    _fan_out: FanOut | None = field(repr=False, default=None)
    fence: Fence = NO_FENCE
    _stores: Stores | None = field(repr=False, default=None)
    _told: list[str] | None = field(init=False, repr=False, default=None)

    @classmethod
    def of(
        cls,
        claim: Claim,
        transaction: Transaction,
        once: Once,
        model: PayloadModel | None = None,
        fan_out: FanOut | None = None,
        *,
        stores: Stores | None = None,
    ) -> "Job":
        """
        Show a handler its claim.

        Raises:
            PermanentError: its payload cannot be read, or does not fit the model, now or ever.
            TemporaryError: its payload is of a version that is newer than the model.

        """
        try:
            payload = claim.payload
        except (ValueError, RecursionError) as error:
            raise PermanentError(f"the payload cannot be read: {error}") from error
        data: Any = payload if model is None else model.read(payload)
        return cls(
            id=claim.job_id, kind=claim.kind, key=claim.key, payload=payload,
            attempt=claim.attempt, attempts_max=claim.attempts_max, event_id=claim.event_id,
            _transaction=transaction, _once=once, data=data, _fan_out=fan_out, fence=claim.fence,
            _stores=stores,
        )  # fmt: skip

    @property
    def stores(self) -> Stores:
        """What reliq's own kinds ask of the tables beside their job, outside of its transaction."""
        if self._stores is None:
            raise RuntimeError("a Job made by hand, or isolated, has no tables to ask")
        return self._stores

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """
        Write to the same database so that the writes and the job's success are one commit.

        `async with job.transaction() as tx:` yields an asyncpg connection inside a
        transaction. At the end of the block the job is settled in that transaction, under its
        fence: either all of it commits and the job has succeeded, or nothing was written. What
        `set_result` was given inside the block is the job's result. The
        server ends a transaction that idles for half a lease: wait for others before it. Execute
        neither `commit` nor `rollback`: the block's end is the transaction's. One that is followed
        by another `begin` is not noticed.

        Raises:
            RuntimeError: at the end of the block, when a statement has ended the transaction.
            LeaseLost: at the end of the block, when the job is no longer ours.
            StoreUnavailable: the database went away; the commit may or may not have happened.

        """
        told: list[str] = []
        self._told = told
        try:
            async with self._transaction(told) as connection:
                yield connection
        finally:
            self._told = None

    def set_result(self, result: Any) -> None:
        """
        Say inside `job.transaction()` what came of the job, as `Done(result)` does elsewhere.

        It is kept, or not, under the same conditions; of several the last one counts.

        Raises:
            RuntimeError: outside of the block there is nothing that it could be committed with.

        """
        if self._told is None:
            raise RuntimeError("set_result() is for job.transaction(): else return Done(result)")
        self._told[:] = [result_json(result)]

    async def once(self, key: str) -> Effect:
        """
        Ask for something to be done outside once, whatever becomes of this attempt.

        Every job that uses the key, of any kind, means the same effect. Say `await effect.done(…)`
        as soon as it is done. Ask once: an attempt that asks again, also in another of its tasks,
        hears that it is unknown. It comes before `job.transaction()`, which settles the job.

        Raises:
            EffectTaken: another job is at it: let it pass, and this job comes again later.
            LeaseLost: the job is no longer ours, and nothing was written.
            StoreUnavailable: the database went away.

        """
        return await self._once(key)

    async def fan_out(
        self,
        tx: Any,
        children: Sequence[NewJob],
        *,
        then: NewJob,
        on_failure: OnFailure = "hold",
    ) -> int:
        """
        Make children, and later one final job, in the transaction `tx` of this job.

        ```python
        async with job.transaction() as tx:
            await job.fan_out(tx, pages, then=NewJob(kind="book.bind", payload={"book": 7}))
        ```

        They exist exactly if this job has succeeded, so that a handler that runs again makes none
        twice. `then` is made once, when every child has ended; its payload gets `family`: the
        numbers of `children`, and of those that `succeeded`, are `dead` or were `cancelled`. Under
        "hold" a dead child holds it until it was made anew and has succeeded; under "continue" it
        does not. Answers how many children were made: none, if it was called before.

        Raises:
            ValueError: a job cannot be stored, or brings a key; nothing is made.
            StoreUnavailable: the database went away; nothing is made unless the block has ended.

        """
        if self._fan_out is None:
            raise RuntimeError("a Job made by hand has no queue to put children into")
        family = Family(children=children, then=then, on_failure=on_failure)
        return await self._fan_out(tx, self.id, family)
