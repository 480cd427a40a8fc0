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

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from types import NoneType
from typing import Any, Final

from reliq.domain import fields
from reliq.domain.event import Delivery
from reliq.domain.fields import Sort
from reliq.domain.job import NewJob, check_name
from reliq.domain.keep import Keep
from reliq.domain.outcome import Outcome
from reliq.domain.payload import PayloadModel, Upgrade, plain
from reliq.domain.policy import DEFAULT, Policy
from reliq.domain.retry import Retry, RetryPolicy, RetryTable
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

BODY_BYTES_MAX: Final = 2**31 - 1

_RUN: Final[tuple[Sort, ...]] = ("coroutine", "other")
_SOURCE: Final = re.compile(r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")
"""It is part of an address and, with _ for -, of a variable's name, where two of them end it."""

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
        function = getattr(self.run, "func", self.run)
        name = getattr(function, "__qualname__", type(function).__name__)
        where = f"Handler({name}): "
        fields.check_called(f"{where}run", self.run, _RUN)
        fields.check_type(f"{where}policy", self.policy, Policy)
        fields.check_type(f"{where}retry", self.retry, RetryPolicy, RetryTable, NoneType)
        fields.check_type(f"{where}isolated", self.isolated, bool)
        if self.time_limit is not None:
            fields.check_duration(f"{where}time_limit", self.time_limit)
        if self.upgrade is not None:
            fields.check_called(f"{where}upgrade", self.upgrade)
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

    def check(self, where: str) -> None:
        """
        Refuse what would make every delivery fail; `where` names the source.

        Raises:
            ValueError: naming the field, and no value that may be a secret.

        """
        if not isinstance(self.signature, Scheme):  # perhaps it is the secret itself
            raise ValueError(f"{where}signature is no Hmac or Token, as Hmac(header=…)")  # noqa: TRY004
        fields.check_called(f"{where}route", self.route, {"other", "generator"})
        fields.check_called(f"{where}dedup_key", self.dedup_key)
        if self.body_max is not None:
            fields.check_whole(f"{where}body_max", self.body_max, 1, BODY_BYTES_MAX)
        fields.check_texts(f"{where}headers_kept", self.headers_kept)


_FIELDS: Final[Mapping[str, type]] = {
    "sources": Source, "handlers": object, "keep": Keep, "schedules": Schedule, "close": object,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """
    Everything reliq serves and works for one team.

    `handlers` are named by their kinds. Kinds `alert.…` are reliq's own channels: when a job of one
    dies no alert is made, so none of yours may have such a name. `needs` names settings that must
    be given for this App to run; `close` is awaited when the process ends. `keep` says how long
    jobs of a kind are kept where that differs from the settings. `secrets` names fields of
    payloads, at any depth, whose values are masked on screens, in errors, logs and alerts, and are
    encrypted in the tables where RELIQ_ENCRYPTION_KEYS is set.
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
        self._check_fields()
        known = {
            kind: found if isinstance(found, Handler) else Handler(found)
            for kind, found in self.handlers.items()
        }
        object.__setattr__(self, "_handlers", known)
        for schedule in self.schedules:
            if schedule.kind not in self.handlers:
                raise ValueError(
                    f"the schedule {schedule.id!r} makes jobs of kind {schedule.kind!r}, "
                    f"which has no handler: add it to handlers={{…}}"
                )
            self.checked(NewJob(kind=schedule.kind, payload=schedule.payload))
        check_ids(self.schedules)

    def _check_fields(self) -> None:
        for field_name, sort in _FIELDS.items():
            given: Any = getattr(self, field_name)
            by_name = field_name in {"sources", "handlers", "keep"}
            sorts = (dict, Mapping) if by_name else (list, tuple)
            fields.check_type(f"App: {field_name}", given, *sorts)
            for name, value in given.items() if by_name else enumerate(given):
                fields.check_type(f"App: a name in {field_name}", name, str if by_name else int)
                if sort is Source and not isinstance(value, Source):  # perhaps it is the secret
                    raise ValueError(
                        f"App: sources[{name!r}] is no Source, but {type(value).__name__}"
                    )
                fields.check_type(f"App: {field_name}[{name!r}]", value, sort)
        for source_name, source in self.sources.items():
            is_right = _SOURCE.fullmatch(source_name) is not None
            wanted = "letters and digits, between them single - or _"
            fields.check_field("App: the name of a source", source_name, wanted, is_right=is_right)
            source.check(f"sources[{source_name!r}]: ")
        for kind, found in self.handlers.items():
            check_name("App: the kind of a handler", kind)
            if not isinstance(found, Handler):
                fields.check_called(f"handlers[{kind!r}]", found, _RUN)
        for number, close in enumerate(self.close):
            fields.check_awaited(f"App: close[{number}]", close)
        fields.check_texts("App: needs", self.needs)
        fields.check_texts("App: secrets", self.secrets)  # a text would be a set of letters

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
