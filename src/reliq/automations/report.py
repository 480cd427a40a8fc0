"""
Reports: one job asks for it, many make a chunk each, and a last one says that it is there.

| kind             | payload                       | does                                             |
|------------------|-------------------------------|--------------------------------------------------|
| `report.request` | `report`, `params`            | splits it into chunks, and fans out              |
| `report.chunk`   | `report`, `name`, `chunk`, `of` | writes one chunk's rows as CSV                  |
| `report.finish`  | `report`, `name`              | sums the rows up: the report is ready, or failed |

Each writes in the transaction that settles its job: what is there is there once, whatever dies
and runs again. A report has the number of its first job. Memory is bounded by a part, not by a
chunk and not by the report.

A team's own report is a `Report`, given to `handlers` beside or instead of `REPORTS`.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final, get_args

import anyio
import structlog

from reliq.app import App, Handler
from reliq.automations.sheet import Sheet, csv_lines
from reliq.domain.family import OnFailure
from reliq.domain.fields import (
    check_awaited,
    check_field,
    check_texts,
    check_type,
    sort_of,
)
from reliq.domain.job import NewJob
from reliq.domain.policy import REPORT
from reliq.domain.report import Part, report_link
from reliq.errors import ConfigInvalid, PermanentError
from reliq.job import Job
from reliq.postgres.reports import (
    begin_report,
    end_report,
    ended_jobs,
    place_report,
    read_parts,
    span_of_jobs,
    write_part,
)
from reliq.settings import Settings

QUEUE: Final = "reports"
"""Theirs alone, so that a worker can bound it: `reliq worker --queues default,reports:4`."""

POLICY: Final = replace(REPORT, queue=QUEUE)

CHUNKS_MAX: Final = 10_000
CHUNKS_AT_ONCE: Final = 4
"""Of a worker: each holds one of its connections for transactions, which others need, too."""

JOBS_OF_A_CHUNK: Final = 20_000
DAY: Final = timedelta(days=1)

Params = Mapping[str, Any]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """
    One sort of report.

    `split(tx, params)` says in which chunks it is made, each a small JSON object; `rows(tx, chunk)`
    yields the rows of one, in their order, as `tx.cursor(…)` brings them: sequences, or mappings, which
    are taken by the names of the columns. `tx` is an asyncpg connection inside the job's transaction. Under "hold" a dead chunk holds the report until a
    person has made it anew, under "continue" the report has failed. `put(number, lines)`, if there is
    one, takes the content elsewhere and answers its http address; it may be called again.
    """

    columns: Sequence[str]
    split: Callable[[Any, Params], Awaitable[Sequence[Params]]]
    rows: Callable[[Any, Params], AsyncIterator[Any]]
    on_failure: OnFailure = "hold"
    put: Callable[[int, AsyncIterator[str]], Awaitable[str]] | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The payload of `report.request`."""

    report: str
    params: dict[str, Any] = field(default_factory=dict)


def request(
    report: str,
    params: Params = MappingProxyType({}),
    *,
    key: str | None = None,
    run_in: timedelta = timedelta(0),
) -> NewJob:
    """Describe the job that asks for a report; its number is the report's."""
    return NewJob(
        kind="report.request", payload={"report": report, "params": dict(params)}, key=key,
        run_in=run_in, queue=QUEUE, priority=POLICY.priority,
    )  # fmt: skip


def handlers(reports: Mapping[str, Report]) -> dict[str, Handler]:
    """
    Make the three kinds' handlers, for reports by name.

    Raises:
        ValueError: a name cannot be part of a file's name, or a field of a report cannot work.

    """
    for name, report in reports.items():
        if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII):
            raise ValueError(f"a report is named in letters, digits, _ . and -, not {name!r}")
        _check(f"the report {name!r}", report)
    room = anyio.CapacityLimiter(CHUNKS_AT_ONCE)
    return {
        "report.request": Handler(partial(begin, reports), policy=POLICY, payload=Wanted),
        "report.chunk": Handler(partial(make_chunk, reports, room), policy=POLICY),
        "report.finish": Handler(partial(finish, reports), policy=POLICY),
    }


def reports_of(app: App) -> Mapping[str, Report] | None:
    """Tell which reports an App makes; None where a handler of its own begins them, who alone knows."""
    if "report.request" not in app.handlers:
        return {}
    match app.handler("report.request").run:
        case partial(func=func, args=[reports]) if func is begin:
            known: Mapping[str, Report] = reports
            return known
        case _:
            return None


def _check(where: str, report: Report) -> None:
    check_type(where, report, Report)
    check_type(f"{where}: columns", report.columns, list, tuple)
    check_texts(f"{where}: columns", report.columns)
    has_some = len(report.columns) > 0
    check_field(f"{where}: columns", report.columns, "one name or more", is_right=has_some)
    check_awaited(f"{where}: split", report.split)
    is_rows = isinstance(report.rows, type) or sort_of(report.rows) in {"async generator", "other"}
    wanted = "an async generator (async def with yield)"
    check_field(f"{where}: rows", report.rows, wanted, is_right=is_rows)
    is_known = report.on_failure in get_args(OnFailure)
    check_field(f"{where}: on_failure", report.on_failure, "hold or continue", is_right=is_known)
    if report.put is not None:
        check_awaited(f"{where}: put", report.put)


def link(settings: Settings, report_id: int, expires_at: datetime) -> str:
    """
    Make the link to a report that is good until `expires_at`.

    Raises:
        ConfigInvalid: the settings lack the secret or the receiver's public address.

    """
    if settings.report_secret is None or settings.public_url is None:
        raise ConfigInvalid(settings.missing("report_secret", "public_url"))
    secret = settings.report_secret.get_secret_value().encode()
    return report_link(settings.public_url, secret, report_id, expires_at)


async def begin(reports: Mapping[str, Report], job: Job[Wanted]) -> None:
    """Split a report into chunks, and make a job for each."""
    name, params = job.data.report, job.data.params
    report, about = _known(reports, name), {"report": job.id, "name": name}
    async with job.transaction() as tx:
        chunks: object = await report.split(tx, params)
        if not isinstance(chunks, list | tuple) or not all(isinstance(c, Mapping) for c in chunks):
            raise PermanentError(f"split of the report {name} gives no list of dicts, one a chunk")
        await begin_report(tx, job.id, name, len(chunks))
        await write_part(tx, job.id, Part(0, 1, 0, csv_lines([report.columns])))
        children = [
            _job("report.chunk", {**about, "chunk": n, "of": dict(of)})
            for n, of in enumerate(chunks, 1)
        ]
        then = _job("report.finish", about)
        await job.fan_out(tx, children, then=then, on_failure=report.on_failure)
        job.set_result({"report": job.id, "chunks": len(chunks)})


async def make_chunk(reports: Mapping[str, Report], room: anyio.CapacityLimiter, job: Job) -> None:
    """Write the rows of one chunk, part by part, when there is room for it."""
    wish = job.payload
    report = _known(reports, wish["name"])
    async with room, job.transaction() as tx:
        sheet = Sheet(tx, wish["report"], wish["chunk"], report.columns)
        async for row in report.rows(tx, wish["of"]):
            await sheet.add(row)
        written = await sheet.close()
        job.set_result({"report": wish["report"], "rows": written})


async def finish(reports: Mapping[str, Report], job: Job) -> None:
    """Say that a report is ready, or that it has failed and why."""
    report_id, report = job.payload["report"], _known(reports, job.payload["name"])
    async with job.transaction() as tx:
        ended = await end_report(tx, report_id)
        if ended is None:
            return
        if report.put is not None and ended["state"] == "ready":
            file = await report.put(report_id, _lines(tx, report_id))
            if not str(file).startswith(("http://", "https://")):
                raise PermanentError("a report was put to what is no http address")
            await place_report(tx, report_id, file)
        log.info("report.ended", job_id=job.id, report=report_id, **ended)
        job.set_result({"report": report_id, **ended})


async def _lines(tx: Any, report_id: int) -> AsyncIterator[str]:
    async for part in read_parts(tx, report_id):
        yield part.content


def _known(reports: Mapping[str, Report], name: str) -> Report:
    if (report := reports.get(name)) is None:
        raise PermanentError(unknown(name, reports))
    return report


def unknown(name: str, reports: Mapping[str, Report]) -> str:
    """Say that there is no such report, and which there are."""
    return f"this App has no report {name!r}: it has {', '.join(sorted(reports)) or 'none'}"


def _job(kind: str, payload: Params) -> NewJob:
    return NewJob(kind=kind, payload=payload, queue=QUEUE, priority=POLICY.priority)


async def _split_jobs(tx: Any, params: Params) -> Sequence[Params]:
    """Cut the numbers of all jobs into ranges: no index knows when a job ended."""
    first, last, now = await span_of_jobs(tx)
    until = min(_moment(params, "until", now), now)
    span = {"since": _moment(params, "since", until - DAY).isoformat(), "until": until.isoformat()}
    size = max(JOBS_OF_A_CHUNK, (last - first) // CHUNKS_MAX + 1)
    return [
        {"first": start, "last": min(start + size - 1, last), **span}
        for start in range(first, last + 1, size)
    ]


def _moment(params: Params, name: str, default: datetime) -> datetime:
    text = params.get(name)
    try:
        found = default if text is None else datetime.fromisoformat(text)
    except (TypeError, ValueError):
        found = None
    if found is None or found.tzinfo is None:
        raise PermanentError(f"{name} is a moment with its offset, as 2026-11-30T00:00:00+00:00")
    return found


def _rows_of_jobs(tx: Any, chunk: Params) -> AsyncIterator[Any]:
    since, until = (datetime.fromisoformat(chunk[name]) for name in ("since", "until"))
    return ended_jobs(tx, chunk["first"], chunk["last"], since, until)


JOBS: Final = Report(
    columns=("id", "kind", "state", "attempts", "created_at", "claimed_at", "finished_at"),
    split=_split_jobs,
    rows=_rows_of_jobs,
)
"""Jobs that ended from `since` (a day before, unless given) to before `until` (now)."""

REPORTS: Final[Mapping[str, Report]] = MappingProxyType({"jobs": JOBS})
