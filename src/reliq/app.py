"""
The App: sources, handlers and schedules, composed in the open.

```python
app = App(
    sources={"shop": Source(signature=Hmac(header="x-shop-signature"), route=orders)},
    handlers={"order.paid": Handler(send_receipt, time_limit=timedelta(seconds=20))},
    schedules=[Schedule(kind="digest", when=Daily(at="09:00", zone="Europe/Berlin"))],
)
```

A new automation is one source, one handler, or both; nothing registers itself by import.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Generic, Literal, cast

from typing_extensions import TypeVar

from reliq.domain.event import Delivery
from reliq.domain.family import Family, OnFailure
from reliq.domain.job import Claim, EventId, Fence, JobId, Kind, NewJob, Payload
from reliq.domain.keep import Keep
from reliq.domain.outcome import Outcome
from reliq.domain.payload import PayloadModel, Upgrade, plain
from reliq.domain.policy import DEFAULT, Policy
from reliq.domain.retry import Retry
from reliq.domain.signature import Scheme
from reliq.domain.slots import Schedule, check_ids
from reliq.domain.text import result_json
from reliq.errors import PermanentError, TemporaryError
from reliq.ports import Stores

HEADERS_KEPT: Final = frozenset({"content-type", "user-agent"})
"""What is stored of every delivery's headers; a source names more. Never a secret's header."""

ALERT_KIND: Final = "alert"
"""
The kind of job that the queue makes when a job dies; an App that handles it gets alerts.

Kinds that begin with it and a dot are its channels: when they die, no alert is made either.
"""

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
    an earlier attempt did: ask the provider, repeat it under the same idempotency key, or give
    up. `done`: `result` is what was said of it then. `released`: you gave it back.
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
        server ends a transaction that idles for half a lease: wait for others before it.

        Raises:
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
        as soon as it is done. It comes before `job.transaction()`, which settles the job.

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


Run = Callable[[Job], Awaitable[Outcome | None]] | Callable[[Job], Outcome | None]


@dataclass(frozen=True, slots=True)
class Handler:
    """
    How jobs of one kind are run.

    A coroutine function runs in the event loop, a plain function in a thread; either of them,
    `isolated`, in a process of its own, which is killed at its time limit and has neither
    `job.transaction()` nor `job.once()`. `retry` and `time_limit` default to the policy's, and
    those to the settings'. A time limit of None there means the default, never "no limit".
    `payload` is the kind's model, a dataclass or a pydantic one, and `upgrade` reads what was
    stored for an older version of it.
    """

    run: Run
    retry: Retry | None = None
    time_limit: timedelta | None = None
    isolated: bool = False
    _: KW_ONLY
    policy: Policy = DEFAULT
    payload: type | None = None
    upgrade: Upgrade | None = None
    model: PayloadModel | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "retry", self.retry or self.policy.retry)
        object.__setattr__(self, "time_limit", self.time_limit or self.policy.time_limit)
        if self.upgrade is not None and self.payload is None:
            raise TypeError("an upgrade needs a model to upgrade to: Handler(…, payload=…)")
        if self.payload is not None:
            object.__setattr__(self, "model", PayloadModel(self.payload, self.upgrade))


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """
    A sender: how to know it, how to tell its events apart, what jobs they make.

    `route` and `dedup_key` see verified deliveries only. When one of them raises, the event
    is stored without jobs and can be replayed once the code is mended. Without a dedup key
    every delivery is an event of its own. `headers_kept` are stored besides the usual two, and
    are all that a replay will see.
    """

    signature: Scheme
    route: Callable[[Delivery], Sequence[NewJob]]
    dedup_key: Callable[[Delivery], str | None] = lambda _: None
    body_max: int | None = None
    headers_kept: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """
    Everything reliq serves and works for one team.

    `needs` names settings that must be given for this App to run; `close` is awaited when the
    process ends. `keep` says how long jobs of a kind are kept where that differs from the
    settings. `secrets` names fields of payloads, at any depth, whose values are masked on screens,
    in errors, logs and alerts, and are encrypted in the tables where RELIQ_ENCRYPTION_KEYS is set.
    """

    sources: Mapping[str, Source] = field(default_factory=dict)
    handlers: Mapping[str, Handler | Run] = field(default_factory=dict)
    schedules: Sequence[Schedule] = ()
    needs: Sequence[str] = ()
    close: Sequence[Callable[[], Awaitable[None]]] = ()
    keep: Mapping[str, Keep] = field(default_factory=dict)
    secrets: AbstractSet[str] = frozenset()
    _handlers: dict[str, Handler] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = {
            kind: found if isinstance(found, Handler) else Handler(found)
            for kind, found in self.handlers.items()
        }
        object.__setattr__(self, "_handlers", known)
        for name, source in self.sources.items():
            if not isinstance(source, Source):
                raise TypeError(f"sources[{name!r}] is no Source: {source!r}")
        for kind in self.handlers:
            if not callable(run := self.handler(kind).run):
                raise TypeError(f"handlers[{kind!r}] is neither a function nor a Handler: {run!r}")
            if inspect.isgeneratorfunction(run) or inspect.isasyncgenfunction(run):
                raise TypeError(f"handlers[{kind!r}] is a generator: nothing would run it")
        for schedule in self.schedules:
            if schedule.kind not in self.handlers:
                raise ValueError(
                    f"the schedule {schedule.id!r} makes jobs of kind {schedule.kind!r}, "
                    f"which has no handler: add it to handlers={{…}}"
                )
            self.checked(NewJob(kind=schedule.kind, payload=schedule.payload))
        check_ids(self.schedules)
        self._check_records()

    def _check_records(self) -> None:
        for kind, keep in self.keep.items():
            if not isinstance(keep, Keep):
                raise TypeError(f"keep[{kind!r}] is no Keep: {keep!r}")
        secrets: object = self.secrets
        if isinstance(secrets, str):  # would be a set of letters
            raise TypeError(f"secrets is a set of names: write {{{secrets!r}}}")

    def handler(self, kind: str) -> Handler:
        """Look up the handler of a kind that is among `handlers`."""
        return self._handlers[kind]

    def checked(self, job: NewJob) -> NewJob:
        """
        Return a job as this App makes it: it fits its kind's model, and has its kind's place.

        What routes and schedules make goes through here by itself. A kind without a handler is
        somebody else's, and its jobs stay as they are.

        Raises:
            ValueError: the payload does not fit; the message names fields and quotes no value.

        """
        handler = self._handlers.get(job.kind)
        if handler is None or (handler.model is None and handler.policy is DEFAULT):
            return job
        if handler.model is not None:
            given = job.payload
            try:
                handler.model.read(given if isinstance(given, Mapping) else plain(given))
            except (PermanentError, TemporaryError) as error:
                raise ValueError(f"a job of kind {job.kind!r}: {error}") from None
        policy = handler.policy
        return replace(
            job,
            queue=policy.queue if job.queue is None else job.queue,
            priority=policy.priority if job.priority is None else job.priority,
        )
