"""Put jobs into the queue, inside the caller's transaction or in one of its own."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, Final, Literal

import anyio
import asyncpg

from reliq.domain.event import storable_key
from reliq.domain.job import (
    PRIORITY_DEFAULT,
    QUEUE_DEFAULT,
    DuplicateOf,
    Enqueued,
    Inserted,
    JobId,
    NewJob,
    Payload,
    check_job,
)
from reliq.domain.payload import Fields
from reliq.domain.sealed import Sealer
from reliq.postgres.failures import translated
from reliq.postgres.pool import Connection
from reliq.postgres.queries import query

KEY_TTL: Final = timedelta(days=35)
"""How long a key keeps a second job away, longer than a stored event can be replayed."""

CHUNK: Final = 20_000
"""Jobs in one statement: of fewer, the server waits for us more; of more, it holds more in memory."""

UNDO_S: Final = 5.0
"""Seconds for a rollback, after which the connection is given up."""

Style = Literal["pyformat", "named"]
"""How a driver writes parameters, in the words of Python's DB-API: `%(kind)s` or `:kind`."""

_PLACES: Final[Mapping[Style, str]] = {"pyformat": "%({})s", "named": ":{}"}

_COPIED: Final = ("id", "kind", "payload", "key", "run_at", "queue", "priority", "parent_id")


async def enqueue(
    connection: Connection | asyncpg.Pool,
    kind: str,
    payload: Fields | None = None,
    *,
    key: str | None = None,
    run_in: timedelta = timedelta(0),
    queue: str = QUEUE_DEFAULT,
    priority: int = PRIORITY_DEFAULT,
    group_key: str | None = None,
    group_running: int = 1,
    sealing: Sealer | None = None,
) -> Enqueued:
    """
    Put one job into the queue through `connection` (an asyncpg connection or pool).

    Inside a transaction of the caller the job exists exactly if that transaction commits;
    outside it commits at once. With a `key` there is one job of this kind and key for as
    long as keys are kept, and the answer to every later call is `DuplicateOf`; a key of more
    than 512 bytes is kept as its SHA-256. Jobs of one `group_key` run one at a time, or as many as
    the last `group_running` said, and start in order; the group is locked until the caller's
    transaction ends. `sealing` (a `reliq.Sealing`) encrypts the payload's secret fields. What
    Postgres cannot store in a payload's texts (NUL,
    lone surrogates) becomes U+FFFD.

    Raises:
        ValueError: the payload is not JSON, or kind, queue, priority or delay make no sense.
        StoreUnavailable: the database did not answer; the job may or may not exist.

    """
    job = NewJob(
        kind=kind, payload={} if payload is None else payload, key=key, run_in=run_in,
        queue=queue, priority=priority, group_key=group_key, group_running=group_running,
    )  # fmt: skip
    return await enqueue_job(connection, job, sealing=sealing)


async def enqueue_job(
    connection: Any, job: NewJob, key_ttl: timedelta = KEY_TTL, *, sealing: Sealer | None = None
) -> Enqueued:
    """Do the same for a job already described."""
    payload, when = check_job(job, sealing), (job.run_in, *job.lane)
    with translated():
        if job.key is None and job.group_key is None:
            text = query("insert_job").text
            row = await connection.fetchrow(text, job.kind, payload, *when)
        else:
            text, key = query("enqueue_job").text, _key(job)
            row = await connection.fetchrow(
                text, job.kind, payload, key, *when, key_ttl, job.group_key, job.group_running
            )
    return _answer(row)


def enqueue_statement(
    job: NewJob, style: Style, *, sealing: Sealer | None = None
) -> tuple[str, dict[str, Any]]:
    """
    Return the statement that enqueues `job` and its parameters, for any driver; sends nothing.

    Its one row is `job_id` and `duplicate`: see `enqueue_answer`.

    Raises:
        ValueError: the payload is not JSON, or kind, key, queue, priority or delay make no sense.

    """
    payload, group = check_job(job, sealing), (job.group_key, job.group_running)
    values = (job.kind, payload, _key(job), job.run_in, *job.lane, KEY_TTL, *group)
    names = (name for name, _ in query("enqueue_job").parameters)
    return _enqueue_text(style), dict(zip(names, values, strict=True))


@cache
def _enqueue_text(style: Style) -> str:
    """Cast every parameter: a driver may send them as it likes, or without a type."""
    found = query("enqueue_job")
    label, end, body = found.text.partition("*/")

    def place(number: re.Match[str]) -> str:
        name, sql_type = found.parameters[int(number[1]) - 1]
        return f"cast({_PLACES[style].format(name)} as {sql_type})"

    return label + end + re.sub(r"\$(\d+)", place, body)


def enqueue_answer(row: Sequence[Any] | None) -> Enqueued:
    """Read the row that `enqueue_statement` answers."""
    if row is None:  # for the sake of the drivers' types: there is always one
        raise RuntimeError("reliq.enqueue answered no row")
    job_id, duplicate = row
    return DuplicateOf(JobId(job_id)) if duplicate else Inserted(JobId(job_id))


async def enqueue_many(
    connection: Connection,
    jobs: Sequence[NewJob],
    key_ttl: timedelta = KEY_TTL,
    *,
    sealing: Sealer | None = None,
) -> list[Enqueued]:
    """
    Put many jobs into the queue, thousands in a statement: all of them or none.

    The answers come in the order of `jobs`. Those with a key are taken once per kind and key,
    also among each other.

    Raises:
        ValueError: a job's payload is not JSON, or its priority or delay are out of range.
        StoreUnavailable: the database did not answer; the jobs may or may not exist.

    """
    answers: list[Enqueued] = []
    with translated():
        transaction = connection.transaction()  # inside the caller's, a savepoint
        await transaction.start()
        try:
            for start in range(0, len(jobs), CHUNK):
                chunk = jobs[start : start + CHUNK]
                answers += await _enqueue_chunk(connection, chunk, key_ttl, sealing)
        except BaseException:
            await _undo(connection, transaction)
            raise
        await transaction.commit()
    return answers


async def _undo(connection: Connection, transaction: asyncpg.transaction.Transaction) -> None:
    """
    Roll back, also when cancelled: a caller whose time was up may commit what stands.

    A server that does not answer loses the connection, and with it whatever was written.
    """
    with anyio.move_on_after(UNDO_S, shield=True) as scope:
        await transaction.rollback()
    if scope.cancelled_caught:
        connection.terminate()


async def _enqueue_chunk(
    connection: Connection, jobs: Sequence[NewJob], key_ttl: timedelta, sealing: Sealer | None
) -> list[Enqueued]:
    if all(getattr(job, "key", "") is getattr(job, "group_key", "") is None for job in jobs):
        return await copy_jobs(connection, jobs, sealing)
    text = query("enqueue_keyed_jobs").text
    rows = await connection.fetch(text, *columns(jobs, sealing), key_ttl)
    rows.sort(key=lambda row: row["place"])
    return [_answer(row) for row in rows]


async def copy_jobs(
    connection: Connection,
    jobs: Sequence[NewJob],
    sealing: Sealer | None = None,
    parent_id: JobId | None = None,
) -> list[Enqueued]:
    """
    Copy jobs without keys: half the server's price of inserting them.

    They are checked and encoded on the way, while the server takes in those before them.
    """
    rows = await connection.fetch(query("reserve_jobs").text, len(jobs))
    ids, now = [row["id"] for row in rows], rows[0]["now"]
    await connection.copy_records_to_table(
        "jobs", schema_name="reliq", columns=_COPIED,
        records=(
            (job_id, job.kind, check_job(job, sealing), f"job:{job_id}", now + job.run_in, *job.lane,
             parent_id)
            for job_id, job in zip(ids, jobs, strict=True)
        ),
    )  # fmt: skip
    return [Inserted(job_id) for job_id in ids]


def _answer(row: asyncpg.Record) -> Enqueued:
    return enqueue_answer((row["job_id"], row["duplicate"]))


def _key(job: NewJob) -> str | None:
    return None if job.key is None else storable_key(job.key)


def columns(jobs: Sequence[NewJob], sealing: Sealer | None = None) -> tuple[list[Any], ...]:
    """
    Turn jobs into the arrays the statements take.

    These are kinds, payloads, keys, delays, queues, priorities, groups and how many of each may run.

    Raises:
        ValueError: a job's payload is not JSON, or its kind, priority or delay make no sense.

    """
    payloads = [check_job(job, sealing) for job in jobs]
    lanes = [job.lane for job in jobs]
    return (
        [job.kind for job in jobs],
        payloads,
        [_key(job) for job in jobs],
        [job.run_in for job in jobs],
        [queue for queue, _ in lanes],
        [priority for _, priority in lanes],
        [job.group_key for job in jobs],
        [job.group_running for job in jobs],
    )


def decoded(payload: str) -> Payload:
    """Read a payload as it comes back from the database."""
    value: Payload = json.loads(payload)
    return value
