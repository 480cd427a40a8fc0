"""The load and the harm: what is done, and when."""

from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from reliq.scenario.model.matching import Trigger
from reliq.scenario.model.system import Rule
from reliq.scenario.model.times import ZERO, Length, Real, Strict

CALL: dict[str, Any] = {"jobs": [{"kind": "drill.call", "payload": {"url": "{upstream}"}}]}


class Deliver(Strict):
    """
    Send signed deliveries to the source `drill`, receivers in turn.

    In `key`, `headers` and the texts of `body`, `{i}` is the number of the delivery (from 1),
    `{copy}` that of the copy, `{key}` its key, `{uuid}` a new word each time and `{upstream}` the
    upstream's address. `copies` are sent at once; `until_2xx` is a sender that tries again,
    `tries` times at most, and gives each try `timeout`. `forged` ones are signed for another
    `body`, with another `secret`, or sent to a `source` that nobody knows.
    """

    count: int = Field(default=1, ge=1)
    key: str
    every: Real = timedelta(0)
    copies: int = Field(default=1, ge=1, le=200)
    until_2xx: bool = False
    tries: int = Field(default=200, ge=1)
    retry_every: Real = timedelta(milliseconds=20)
    timeout: Real = timedelta(seconds=10)
    headers: dict[str, str] = {}
    body: dict[str, Any] = CALL
    forged: Literal["body", "secret", "source"] | None = None


class Enqueue(Strict):
    """
    Make jobs through `reliq.enqueue`, as any program that speaks SQL does.

    `copies` are programs that ask for the same job at once, each over a connection of its own.
    """

    count: int = Field(default=1, ge=1)
    copies: int = Field(default=1, ge=1, le=20)
    kind: str = "drill.call"
    payload: dict[str, Any] = {"url": "{upstream}"}
    key: str | None = None
    run_in: Length = ZERO
    every: Real = timedelta(0)


class Load(Strict):
    """One thing the senders do, one after the other."""

    deliver: Deliver | None = None
    enqueue: Enqueue | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        return _exactly_one(self, "load")


class When(Strict):
    """
    When a step is due.

    `at` a time after the load began, at an `event` of the history, at the `nth` time that a
    handler comes to a `point` (there its process halts itself until the harm is done), or `after`
    another step fired.
    """

    at: Real | None = None
    event: Trigger | None = None
    point: Literal["started", "before-call", "after-call", "in-transaction", "ending"] | None = None
    after: str | None = None
    nth: int = Field(default=1, ge=1, description="of the point")

    @model_validator(mode="after")
    def _one(self) -> Self:
        return _exactly_one(self, "trigger", but={"nth"})


class Signal(Strict):
    """To `worker-1`, to `worker` (all of them), or to `{event.p}`, whom the trigger named."""

    to: str
    sig: Literal["KILL", "TERM", "STOP", "CONT", "INT"]


class Net(Strict):
    """
    A toxic, in Toxiproxy's words, on the links of `of` (`worker-1`, or a role).

    `ingress` is sender → receiver, `db` is process → Postgres, `egress` is worker → upstream.
    `stream` is upstream (what the client sends) or downstream (what it gets).
    """

    link: Literal["ingress", "db", "egress"]
    of: str | None = None
    toxic: Literal[
        "latency", "timeout", "reset_peer", "limit_data", "bandwidth", "slicer", "slow_close",
        "down",
    ]  # fmt: skip
    stream: Literal["upstream", "downstream"] = "downstream"
    toxicity: float = Field(default=1.0, gt=0, le=1)
    latency: Real | None = None
    jitter: Real | None = None
    timeout: Real | None = None
    bytes: int | None = Field(default=None, ge=0)
    rate: int | None = Field(default=None, ge=1, description="KB/s")
    average_size: int | None = Field(default=None, ge=1)
    size_variation: int | None = Field(default=None, ge=0)
    delay: Real | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needs = {"latency": "latency", "limit_data": "bytes", "bandwidth": "rate",
                 "slicer": "average_size", "slow_close": "delay"}.get(self.toxic)  # fmt: skip
        if needs is not None and getattr(self, needs) is None:
            raise ValueError(f"{self.toxic} without {needs} does nothing: add `{needs}: …`")
        return self

    def attributes(self) -> dict[str, int]:
        """Return Toxiproxy's attributes: milliseconds, microseconds for a slicer's delay, bytes."""
        found: dict[str, int] = {}
        for name in ("latency", "jitter", "timeout", "delay"):
            if (length := getattr(self, name)) is not None:
                per_s = 1e6 if (name, self.toxic) == ("delay", "slicer") else 1e3
                found[name] = round(length.total_seconds() * per_s)
        for name in ("bytes", "rate", "average_size", "size_variation"):
            if (number := getattr(self, name)) is not None:
                found[name] = number
        return found


class Pg(Strict):
    """Harm to Postgres."""

    restart: Literal["fast", "immediate", "kill"] | None = None
    freeze: Literal[True] | None = None
    terminate: str | None = Field(
        default=None, description="backends: a condition on pg_stat_activity"
    )
    every: Real | None = Field(default=None, description="terminate again and again")
    lock_rows: str | None = Field(default=None, description="a select; its rows are locked")
    lock_table: str | None = Field(
        default=None, description="a table; who would change or lock its rows waits"
    )
    hold_snapshot: Literal[True] | None = None
    squat: int | None = Field(default=None, ge=0, description="leave so many connections free")
    sql: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        return _exactly_one(self, "harm to Postgres", but={"every"})


class Clock(Strict):
    """Move the database's clock, by the offset that the harness put into `reliq.now()`."""

    jump: Length
    back: bool = False


class Requeue(Strict):
    """
    Operators who ask at once for every dead letter to be made anew: each one by its number.

    With a `kind` they ask for all of that kind, each operator in one command.
    """

    operators: int = Field(default=1, ge=1, le=10)
    kind: str | None = None


class Cancel(Strict):
    """An operator who asks for all jobs, or those of a kind, to be cancelled that have not ended."""

    kind: str | None = None


class Rekey(Strict):
    """An operator who has all that is sealed in the tables sealed anew, with the newest key."""


class Do(Strict):
    """The harm: exactly one."""

    signal: Signal | None = None
    start: str | None = None
    release: Literal["worker", "receiver"] | None = None
    net: Net | None = None
    pg: Pg | None = None
    clock: Clock | None = None
    upstream: list[Rule] | None = None
    deliver: Deliver | None = None
    enqueue: Enqueue | None = None
    requeue: Requeue | None = None
    cancel: Cancel | None = None
    rekey: Rekey | None = None
    heal: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        return _exactly_one(self, "action")

    @property
    def can_be_undone(self) -> bool:
        """Whether the harm lasts until somebody undoes it."""
        if self.signal is not None:
            return self.signal.sig == "STOP"
        if self.pg is not None:
            lasting = self.pg.freeze or self.pg.hold_snapshot or self.pg.every
            named = (self.pg.lock_rows, self.pg.lock_table, self.pg.squat)
            return bool(lasting) or any(each is not None for each in named)
        return self.net is not None or self.upstream is not None

    @property
    def kind(self) -> str:
        """The name of what is done."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)


class Until(Strict):
    """Undo the harm when so many backends wait for a lock, or an event came, or time is over."""

    blocked_backends: int | None = Field(default=None, ge=1)
    event: Trigger | None = None
    or_after: Length


class Step(Strict):
    """
    One fault: when, and what; `for` and `until` say when it is undone.

    What has neither and can be undone is undone before the system is left to settle. `only`
    restricts it to cells of the matrix; `may_miss` says why it may legitimately not bite.
    """

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    when: When
    delay: Length = ZERO
    do: Do
    for_: Length | None = Field(default=None, alias="for")
    until: Until | None = None
    only: dict[str, Any] = {}
    may_miss: str | None = None


Part = TypeVar("Part", bound=Strict)


def _exactly_one(part: Part, what: str, but: AbstractSet[str] = frozenset()) -> Part:
    names = [name for name in type(part).model_fields if name not in but]
    if sum(getattr(part, name) is not None for name in names) != 1:
        raise ValueError(f"write exactly one {what}: {', '.join(names)}")
    return part
