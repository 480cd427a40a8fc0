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
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import Final

from reliq.domain.event import Delivery
from reliq.domain.job import NewJob
from reliq.domain.keep import Keep
from reliq.domain.outcome import Outcome
from reliq.domain.payload import PayloadModel, Upgrade, plain
from reliq.domain.policy import DEFAULT, Policy
from reliq.domain.retry import Retry
from reliq.domain.signature import Scheme
from reliq.domain.slots import Schedule, check_ids
from reliq.errors import PermanentError, TemporaryError
from reliq.job import Job

HEADERS_KEPT: Final = frozenset({"content-type", "user-agent"})
"""What is stored of every delivery's headers; a source names more. Never a secret's header."""

ALERT_KIND: Final = "alert"
"""
The kind of job that the queue makes when a job dies; an App that handles it gets alerts.

Kinds that begin with it and a dot are its channels: when they die, no alert is made either.
"""

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
