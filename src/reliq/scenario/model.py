"""
What a scenario file may say.

Two kinds of time: values under `system.config` are *product time*, divided by `timescale` when
the processes start (a lease of `60s` at timescale 60 lasts one second); all others are real.
A new trigger, fault or load is a field of `When`, `Do` or `Load`.
"""

import difflib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from reliq.domain.duration import format_duration, parse_duration

LEASE_MIN: Final = timedelta(milliseconds=300)
POLL_MIN: Final = timedelta(milliseconds=20)
"""Shorter than these, after scaling, a run measures the machine and not the product."""


def _real(value: object) -> object:
    if not isinstance(value, str) or value.strip().replace(".", "").isdigit():
        raise ValueError(f"{value!r} is no duration: write it with its unit, as 40ms, 2s or 5m")
    return parse_duration(value)


Real = Annotated[timedelta, BeforeValidator(_real)]
Source = Literal["driver", "rows", "upstream", "process", "fault"]

EVENTS: Final[Mapping[Source, tuple[str, ...]]] = {
    "driver": ("delivery",),
    "rows": (
        "event", "job", "claim", "succeeded", "failed", "again", "release", "lease-lost", "dead",
        "effect",
    ),
    "upstream": ("request", "response"),
    "process": ("started", "exited"),
    "fault": ("fired",),
}  # fmt: skip
"""What each witness speaks of; a pattern with another word would never fit anything."""


class Strict(BaseModel):
    """A part of the file: no unknown keys, no guessing of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Reply(Strict):
    """What the upstream answers, and how long it thinks before."""

    status: int = Field(default=200, ge=200, le=599)
    delay: Real = timedelta(0)


class Rule(Strict):
    """A reply for calls that no rule above took; for ever, or so many times."""

    reply: Reply
    times: int | None = Field(default=None, ge=1)
    times_per_job: int | None = Field(default=None, ge=1)


class Backoff(Strict):
    """The policy of retries; each pause is twice the one before."""

    base: Real = timedelta(seconds=10)
    cap: Real = timedelta(hours=1)
    jitter: float = Field(default=0.2, ge=0, lt=1)


class Config(Strict):
    """Settings of the product, in product time; the defaults are the product's."""

    lease: Real = timedelta(seconds=60)
    poll: Real = timedelta(seconds=1)
    reap_every: Real = timedelta(seconds=5)
    time_limit: Real = timedelta(minutes=5)
    attempts_max: int = Field(default=8, ge=1)
    backoff: Backoff = Backoff()


class Processes(Strict):
    """How many processes of one command, with which settings besides."""

    count: int = Field(default=1, ge=0, le=50)
    concurrency: int = Field(default=1, ge=1)
    env: dict[str, str] = {}


class System(Strict):
    """What is under test, and the upstream that it calls."""

    receiver: Processes = Processes()
    worker: Processes = Processes()
    config: Config = Config()
    upstream: list[Rule] = []


class Deliver(Strict):
    """
    Send signed deliveries to the source `drill`.

    In `key` and in the texts of `body`, `{i}` is the number of the delivery (from 1), `{key}`
    its key and `{upstream}` the upstream's address.
    """

    count: int = Field(default=1, ge=1)
    key: str
    every: Real = timedelta(0)
    body: dict[str, Any] = {"jobs": [{"kind": "drill.call", "payload": {"url": "{upstream}"}}]}


class Load(Strict):
    """One thing the senders do."""

    deliver: Deliver


class Pattern(BaseModel):
    """Entries of the history: by source and name, and by any field of theirs."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    src: Source
    e: str

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.e not in (words := EVENTS[self.src]):
            near = difflib.get_close_matches(self.e, words, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it tells of {', '.join(words)}"
            raise ValueError(f"{self.src} tells of no {self.e!r}: {hint}")
        return self

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields that must fit: a value, a list of values, or `">=1"`."""
        return self.model_extra or {}


class Trigger(Pattern):
    """The `nth` entry that fits."""

    nth: int = Field(default=1, ge=1)


class When(Strict):
    """When a step is due: `at` a time after the load began, or at an `event`."""

    at: Real | None = None
    event: Trigger | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.at is None) == (self.event is None):
            raise ValueError("write exactly one trigger: at or event")
        return self


class Signal(Strict):
    """
    A signal to a process: `worker-1`, or `{event.p}` for the one that the trigger named.

    A STOP that `lasts` so long is followed by a CONT; one that is still on at the end is healed.
    """

    to: str
    sig: Literal["KILL", "TERM", "STOP", "CONT"]
    lasts: Real | None = None

    @model_validator(mode="after")
    def _only_a_stop_lasts(self) -> Self:
        if self.lasts is not None and self.sig != "STOP":
            raise ValueError(f"only STOP lasts: take `lasts` away from {self.sig}")
        return self


class Do(Strict):
    """The harm."""

    signal: Signal


class Step(Strict):
    """One fault: when, and what. `may_miss` says why it may legitimately not bite."""

    id: str
    when: When
    delay: Real = timedelta(0)
    do: Do
    may_miss: str | None = None


class Settle(Strict):
    """How long the system may take to come to rest after the load."""

    within: Real


class Never(Strict):
    """What must not be in the history."""

    what: str
    count: Pattern


class Sometimes(Never):
    """What must be in the history, or the run has not tested what it is for."""

    at_least: int | None = Field(default=None, ge=1)
    at_most: int | None = Field(default=None, ge=0)
    exactly: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.at_least is self.at_most is self.exactly is None:
            raise ValueError("say how often: at_least, at_most or exactly")
        return self

    def is_met(self, count: int) -> bool:
        """Compare a count with what is wanted."""
        return (
            (self.at_least is None or count >= self.at_least)
            and (self.at_most is None or count <= self.at_most)
            and (self.exactly is None or count == self.exactly)
        )


class Expect(Strict):
    """The promises to judge, what must have happened, what must not."""

    always: list[str] = Field(min_length=1)
    sometimes: list[Sometimes] = Field(min_length=1)
    never: list[Never] = []


class Scenario(Strict):
    """One file."""

    scenario: str = Field(pattern=r"^[a-z0-9-]+$")
    title: str
    why: str
    tags: list[str] = []
    timescale: float = Field(default=1000.0, gt=0)
    system: System = System()
    load: list[Load] = Field(min_length=1)
    steps: list[Step] = []
    settle: Settle
    expect: Expect

    def scaled(self, product_time: timedelta) -> timedelta:
        """Return the real time of a product time."""
        return product_time / self.timescale

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Say where the parts do not fit each other: (path in the file, what and what to do)."""
        config = self.system.config
        for name, value, least in (
            ("lease", config.lease, LEASE_MIN),
            ("poll", config.poll, POLL_MIN),
        ):
            if (scaled := self.scaled(value)) < least:
                yield (
                    ("system", "config", name),
                    (
                        f"{name} is {format_duration(scaled)} at timescale {self.timescale:g}: "
                        f"at least {format_duration(least)}, or the run measures the machine"
                    ),
                )
        seen: set[str] = set()
        for n, step in enumerate(self.steps):
            if step.id in seen:
                yield ("steps", n, "id"), f"a second step named {step.id!r}: give it its own id"
            seen.add(step.id)
            to = step.do.signal.to
            if to not in {*self.names(), "{event.p}"}:
                known = ", ".join(self.names())
                yield ("steps", n, "do", "signal", "to"), f"no process {to!r}: there are {known}"

    def names(self) -> list[str]:
        """Name the processes: `receiver-1`, `worker-1`, …."""
        counts = (("receiver", self.system.receiver.count), ("worker", self.system.worker.count))
        return [f"{role}-{n}" for role, count in counts for n in range(1, count + 1)]
