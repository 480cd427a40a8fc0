"""
The App that scenarios run: handlers that do one plain thing each, so that harm shows.

Chosen with `RELIQ_APP=reliq.automations.drill:app`, never the default. Whoever can sign for its
source can make it call any address: not for production.

A delivery is `{"id": "evt-1", "jobs": [{"kind": "drill.call", "payload": {"url": "http://…"}}]}`;
a job may name a `group`, how many of it may be `running`, and a `queue`.

| kind             | payload          | does                                                     |
|------------------|------------------|----------------------------------------------------------|
| `drill.noop`     |                  | nothing                                                  |
| `drill.call`     | `url`            | posts to the address, with the job's key                 |
| `drill.write`    |                  | one row in `drill.effects`, in the transaction of the settle |
| `drill.once`     | `url`, `effect`  | calls unless the effect of that key is done, and says that it is |
| `drill.mail`     | as `mail.send`   | sends a mail, where there is a mail server               |
| `drill.book`     | `url`            | calls, then writes                                       |
| `drill.stubborn` | `url`            | as `book`, and cannot be stopped: its late result meets the fence alone |
| `drill.sleep`    | `s`              | waits                                                    |
| `drill.burn`     | `s`              | computes in the event loop, giving the interpreter's lock away now and then |
| `drill.block`    | `s`              | blocks the event loop                                    |
| `drill.fail`     | `permanent`      | fails, for ever if `permanent` is true                   |
| `drill.exit`     |                  | ends the whole process at once                           |
| `drill.tick`     |                  | the job of a slot: one row in `drill.effects`            |
| `drill.family`   | `jobs`, `then`, `on_failure` | fans out into `copies` of each of the jobs, and `then` one |
| `drill.place`    | `job`, `fails`   | enqueues a job in the transaction of the settle, and fails so many times after that |
| `report.*`       | `params`: `chunks`, `rows` of each, how `wide` a row is | the report `drill`; the chunks halt with one row left |
| `drill.apart.*`  | as without       | `call`, `sleep`, `exit`, `crash` (by a signal) and `hog` (keeps the interpreter's lock for `s` seconds), each in a process of its own |

Where `RELIQ_ALERT_URL` is set, jobs that die make alerts, which are posted there. The table
`drill.effects` is the harness's. At the points of `DRILL_POINTS` the process halts
itself until somebody lets it go on: there the harm is done.
"""

import ctypes
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, cast

import anyio
import httpx
import structlog

from reliq import enqueue
from reliq.app import App, Handler, Source
from reliq.automations import alert, report
from reliq.automations.mail import Mail, Mailer
from reliq.automations.outgoing import Outgoing
from reliq.domain.event import Delivery
from reliq.domain.http import check
from reliq.domain.job import DuplicateOf, NewJob, Payload
from reliq.domain.outcome import Outcome
from reliq.domain.policy import DEFAULT, Policy
from reliq.domain.retry import RetryTable
from reliq.domain.signature import SITE
from reliq.domain.slots import Schedule
from reliq.errors import PermanentError, TemporaryError
from reliq.job import Job
from reliq.settings import Settings

log = structlog.get_logger()

_EFFECT: Final = "insert into drill.effects (job_id, key, attempt) values ($1, $2, $3)"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXIT_CODE: Final = 86
_APART: Final = "drill.apart."
_JOB: Final = ContextVar[Job | None]("job", default=None)

SECRET: Final = "hunter2"  # noqa: S105 - nobody's
"""What a field `secret` of a payload holds, in the tables only sealed."""


@dataclass(frozen=True, slots=True)
class Drill:
    """What all handlers share: a client, and the points at which to halt."""

    http: httpx.AsyncClient
    deadline_s: float
    points: frozenset[str]

    def halt(self, job: Job, point: str) -> None:
        """Stop the whole process here, if it is a point at which somebody waits for it."""
        if point in self.points:
            log.info("drill.point", job_id=job.id, attempt=job.attempt, point=point)
            os.kill(os.getpid(), signal.SIGSTOP)


Does = Callable[[Drill, Job], Awaitable[Outcome | None]]


def app(settings: Settings) -> App:
    """Compose the App; each process has one client."""
    environ = os.environ  # noqa: TID251 - what only the drill knows is no setting of the product
    drill = Drill(
        http=httpx.AsyncClient(
            verify=False,  # noqa: S501 - calls loopback without TLS: nothing to read certificates for
            follow_redirects=False, trust_env=False, event_hooks={"request": [_sign]},
        ),
        deadline_s=settings.time_limit.total_seconds() / 2,
        points=frozenset(environ.get("DRILL_POINTS", "").split(",")),
    )  # fmt: skip
    kinds: dict[str, Does] = {
        "drill.noop": noop, "drill.call": call, "drill.write": write, "drill.book": book,
        "drill.once": once,
        "drill.stubborn": stubborn, "drill.sleep": sleep, "drill.burn": burn,
        "drill.block": block, "drill.fail": fail, "drill.exit": leave, "drill.tick": write,
        "drill.family": family, "drill.place": place,
        f"{_APART}call": call, f"{_APART}sleep": sleep, f"{_APART}exit": leave,
        f"{_APART}crash": crash, f"{_APART}hog": hog,
    }  # fmt: skip
    if settings.mail_url is not None:
        mailer = Mailer.of(settings)
        kinds["drill.mail"] = lambda _, job: mailer.send(job)
    policies = {
        kind: Policy(
            retry=RetryTable(
                tuple(timedelta(seconds=pause) for pause in one["pauses_s"]), jitter=one["jitter"]
            )
        )
        for kind, one in json.loads(environ.get("DRILL_POLICIES", "{}")).items()
    }
    if (url := settings.alert_url) is not None:
        channel = alert.by_webhook(Outgoing(http=lambda: drill.http, url=url, what="the channel"))
        for kind, handler in alert.handlers({"webhook": channel}).items():
            kinds[kind] = cast("Does", lambda _, job, run=handler.run: run(job))
    return App(
        sources={"drill": Source(signature=SITE, route=route, dedup_key=dedup_key)},
        handlers={
            kind: Handler(
                partial(told, drill, does), policy=policies.get(kind, DEFAULT),
                isolated=kind.startswith(_APART),
                payload=Mail if kind == "drill.mail" else None,
            )
            for kind, does in kinds.items()
        } | report.handlers({"drill": NUMBERS}) | {
            "report.chunk": Handler(partial(told, drill, chunk), policy=report.POLICY),
        },
        schedules=[
            Schedule(
                kind="drill.tick", id=one["id"], when=Pulse(one["every_s"]), missed=one["missed"],
                age_max=timedelta(seconds=one["every_s"] * 50),
            )
            for one in json.loads(environ.get("DRILL_SCHEDULES", "[]"))
        ],
        close=[drill.http.aclose],
        secrets={"secret"},
    )  # fmt: skip


def dedup_key(delivery: Delivery) -> str:
    """Take the delivery's own id."""
    return str(delivery.json()["id"])


def route(delivery: Delivery) -> Sequence[NewJob]:
    """Make the jobs that the delivery asks for."""
    return [_wished(job) for job in delivery.json().get("jobs", ())]


def _wished(job: Payload) -> NewJob:
    return NewJob(
        kind=job["kind"], payload=job.get("payload", {}), group_key=job.get("group"),
        group_running=job.get("running", 1), queue=job.get("queue"), key=job.get("key"),
    )  # fmt: skip


def who(job: Job) -> dict[str, str]:
    """Name a job, its attempt and its process for the upstream's log."""
    process = os.getppid() if job.kind.startswith(_APART) else os.getpid()
    told = {"Job": job.id, "Attempt": job.attempt, "Process": process}
    return {f"Drill-{name}": str(value) for name, value in told.items()}


async def _sign(request: httpx.Request) -> None:
    """Say who calls, also of what the product's own code sends."""
    if (job := _JOB.get()) is not None:
        request.headers.update(who(job))


async def told(drill: Drill, does: Does, job: Job) -> Outcome | None:
    """Say when a handler begins and how it ends."""
    about = {"job_id": job.id, "attempt": job.attempt}
    _JOB.set(job)
    log.info("drill.started", **about)
    how = "cancelled"
    try:
        drill.halt(job, "started")
        _look_at_the_secret(job)
        answer = await does(drill, job)
        drill.halt(job, "ending")
        how = "done"
    except Exception:
        how = "raised"
        raise
    finally:
        log.info("drill.ended", how=how, **about)
    return answer


def _look_at_the_secret(job: Job) -> None:
    if job.payload.get("secret", SECRET) != SECRET:
        raise PermanentError("the payload's secret is not what was enqueued")


async def noop(_: Drill, __: Job) -> None:
    """Do nothing."""


async def call(drill: Drill, job: Job, key: str | None = None) -> None:
    """
    Post to the payload's address, with the job's key or another.

    The body is the same at every attempt, as services that know the key may demand. Which
    attempt and which process calls goes into headers, for the upstream's log; of a process of
    its own it is the worker that started it.
    """
    headers = {"Idempotency-Key": key or job.key, **who(job)}
    body: dict[str, Any] = {"job": job.id, "kind": job.kind}
    drill.halt(job, "before-call")
    with anyio.fail_after(drill.deadline_s):
        response = await drill.http.post(
            job.payload["url"], json=body, headers=headers, timeout=drill.deadline_s
        )
    drill.halt(job, "after-call")
    check(response, "the drill's upstream")


async def write(drill: Drill, job: Job) -> None:
    """Write a row that is there if and only if the job has succeeded."""
    async with job.transaction() as transaction:
        await transaction.execute(_EFFECT, job.id, job.key, job.attempt)
        drill.halt(job, "in-transaction")


async def family(drill: Drill, job: Job) -> None:
    """Make children and a final job, which are there if and only if this job has succeeded."""
    wish = job.payload
    children = [_wished(one) for one in wish["jobs"] for _ in range(one.get("copies", 1))]
    async with job.transaction() as transaction:
        await job.fan_out(
            transaction, children, then=_wished(wish["then"]),
            on_failure=wish.get("on_failure", "hold"),
        )  # fmt: skip
        drill.halt(job, "in-transaction")


async def split(_: Any, params: report.Params) -> Sequence[report.Params]:
    """Say which numbers make each chunk of the report `drill`."""
    rows, wide = params["rows"], params.get("wide", 1)
    return [{"first": n * rows, "rows": rows, "wide": wide} for n in range(params["chunks"])]


async def numbers(_: Any, of: report.Params) -> AsyncIterator[Sequence[Any]]:
    """Yield the rows of a chunk."""
    for n in range(of["first"], of["first"] + of["rows"]):
        yield n, "x" * of["wide"]


NUMBERS: Final = report.Report(columns=("n", "x"), split=split, rows=numbers)


async def chunk(drill: Drill, job: Job) -> None:
    """Write a chunk of a report, whose parts but the last are written before the point."""

    async def halting(tx: Any, of: report.Params) -> AsyncIterator[Sequence[Any]]:
        async for row in numbers(tx, of):
            if row[0] == of["first"] + of["rows"] - 1:
                drill.halt(job, "in-transaction")
            yield row

    room = anyio.CapacityLimiter(1)
    await report.make_chunk({"drill": replace(NUMBERS, rows=halting)}, room, job)


async def place(drill: Drill, job: Job) -> None:
    """Enqueue a job that is there if and only if this one has succeeded; fail after it at first."""
    wish = _wished(job.payload["job"])
    async with job.transaction() as transaction:
        made = await enqueue(
            transaction, wish.kind, wish.payload, key=wish.key, group_key=wish.group_key
        )
        about = {"made": made.job_id, "duplicate": isinstance(made, DuplicateOf)}
        asked = {"kind": wish.kind, "key": wish.key}
        log.info("drill.placed", job_id=job.id, attempt=job.attempt, **about, **asked)
        drill.halt(job, "in-transaction")
        if job.attempt <= job.payload.get("fails", 0):
            raise TemporaryError("told to fail")


async def book(drill: Drill, job: Job) -> None:
    """Call, then write."""
    await call(drill, job)
    await write(drill, job)


async def once(drill: Drill, job: Job) -> None:
    """Call once for an effect, whoever is at it; what nobody knows is repeated under its key."""
    effect = await job.once(job.payload["effect"])
    about = {"key": effect.key, "found": effect.found}
    log.info("drill.effect", job_id=job.id, attempt=job.attempt, **about)
    if not effect.is_done:
        await call(drill, job, effect.key)
        await effect.done({"job": job.id})


async def stubborn(drill: Drill, job: Job) -> None:
    """
    Call, then write, out of reach of cancellation, as code does that swallows it.

    A worker that wakes from a freeze stops its handlers at once; this one goes on, so that its
    late result reaches the database and only the fence is left to refuse it.
    """
    with anyio.CancelScope(shield=True):
        await book(drill, job)


async def sleep(_: Drill, job: Job) -> None:
    """Wait for as many seconds as the payload says."""
    await anyio.sleep(job.payload["s"])


async def burn(_: Drill, job: Job) -> None:
    """Compute without awaiting; the interpreter gives its lock away every few milliseconds."""
    ends_s = time.monotonic() + job.payload["s"]
    while time.monotonic() < ends_s:
        sum(range(1000))


async def block(_: Drill, job: Job) -> None:
    """Block the event loop, as a call does that was not made for it."""
    time.sleep(job.payload["s"])  # noqa: ASYNC251


async def fail(_: Drill, job: Job) -> None:
    """Fail; a permanent failure buries the job at once."""
    if job.payload.get("permanent", False):
        raise PermanentError("told to fail for ever")
    raise TemporaryError("told to fail")


async def leave(_: Drill, __: Job) -> None:
    """End the process as running out of memory does: without a word."""
    os._exit(_EXIT_CODE)


async def crash(_: Drill, __: Job) -> None:
    """End the process as a library does that reads where it must not."""
    os.kill(os.getpid(), signal.SIGSEGV)


async def hog(_: Drill, job: Job) -> None:
    """Stay in C calls that keep the interpreter's lock, and say after each that it still goes on."""
    ends_s = time.monotonic() + job.payload["s"]
    while time.monotonic() < ends_s:
        ctypes.PyDLL(None).usleep(100_000)
        log.info("drill.going", job_id=job.id, attempt=job.attempt)


@dataclass(frozen=True, slots=True)
class Pulse:
    """A slot every so many seconds since 1970: schedules for people know no such pace."""

    every_s: float

    def between(self, after: datetime, until: datetime) -> list[datetime]:
        """List the slots in (after, until]."""
        first = int((after - _EPOCH).total_seconds() // self.every_s) + 1
        last = int((until - _EPOCH).total_seconds() // self.every_s)
        return [_EPOCH + timedelta(seconds=n * self.every_s) for n in range(first, last + 1)]

    def most(self, span: timedelta) -> int:
        """Return how many slots a span holds at most."""
        return int(span.total_seconds() / self.every_s) + 1
