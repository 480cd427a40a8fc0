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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from reliq.domain.event import Delivery
from reliq.domain.family import Family, OnFailure
from reliq.domain.job import Claim, EventId, JobId, Kind, NewJob, Payload
from reliq.domain.outcome import Outcome
from reliq.domain.retry import RetryPolicy
from reliq.domain.signature import Scheme
from reliq.domain.slots import Schedule, check_ids
from reliq.errors import PermanentError

HEADERS_KEPT: Final = frozenset({"content-type", "user-agent"})
"""What is stored of every delivery's headers; a source names more. Never a secret's header."""

ALERT_KIND: Final = "alert"
"""The kind of job that the queue makes when a job dies; an App that handles it gets alerts."""


FanOut = Callable[[Any, JobId, Family], Awaitable[int]]


@dataclass(slots=True)
class Job:
    """
    What a handler gets: one attempt at one job.

    `key` is the same at every attempt, after a takeover and after a requeue: pass it on to
    providers that take an idempotency key. `attempt` counts from 1.
    """

    id: JobId
    kind: Kind
    key: str
    payload: Payload
    attempt: int
    attempts_max: int
    event_id: EventId | None
    _transaction: Callable[[], AbstractAsyncContextManager[Any]] = field(repr=False)
    _fan_out: FanOut | None = field(repr=False, default=None)

    @classmethod
    def of(
        cls,
        claim: Claim,
        transaction: Callable[[], AbstractAsyncContextManager[Any]],
        fan_out: FanOut,
    ) -> "Job":
        """
        Show a handler its claim.

        Raises:
            PermanentError: its payload cannot be read, now or ever.

        """
        try:
            payload = claim.payload
        except (ValueError, RecursionError) as error:
            raise PermanentError(f"the payload cannot be read: {error}") from error
        return cls(
            id=claim.job_id, kind=claim.kind, key=claim.key, payload=payload,
            attempt=claim.attempt, attempts_max=claim.attempts_max, event_id=claim.event_id,
            _transaction=transaction, _fan_out=fan_out,
        )  # fmt: skip

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """
        Write to the same database so that the writes and the job's success are one commit.

        `async with job.transaction() as tx:` yields an asyncpg connection inside a
        transaction. At the end of the block the job is settled in that transaction, under its
        fence: either all of it commits and the job has succeeded, or nothing was written. The
        server ends a transaction that idles for half a lease: wait for others before it.

        Raises:
            LeaseLost: at the end of the block, when the job is no longer ours.
            StoreUnavailable: the database went away; the commit may or may not have happened.

        """
        return self._transaction()

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

    A coroutine function runs in the event loop, a plain function in a thread. `retry` and
    `time_limit` default to the settings'. A time limit of None there means the default, never
    "no limit".
    """

    run: Run
    retry: RetryPolicy | None = None
    time_limit: timedelta | None = None


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
    process ends.
    """

    sources: Mapping[str, Source] = field(default_factory=dict)
    handlers: Mapping[str, Handler | Run] = field(default_factory=dict)
    schedules: Sequence[Schedule] = ()
    needs: Sequence[str] = ()
    close: Sequence[Callable[[], Awaitable[None]]] = ()
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
        check_ids(self.schedules)

    def handler(self, kind: str) -> Handler:
        """Look up the handler of a kind that is among `handlers`."""
        return self._handlers[kind]
