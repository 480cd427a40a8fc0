"""Put jobs into the queue, inside the caller's transaction or in one of its own."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

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
from reliq.postgres.failures import translated
from reliq.postgres.pool import Connection
from reliq.postgres.queries import query

KEY_TTL: Final = timedelta(days=35)
"""How long a key keeps a second job away, longer than a stored event can be replayed."""

CHUNK: Final = 20_000
"""Jobs in one statement: of fewer, the server waits for us more; of more, it holds more in memory."""

_COPIED: Final = ("id", "kind", "payload", "key", "run_at", "queue", "priority", "parent_id")


async def enqueue(
    connection: Connection | asyncpg.Pool,
    kind: str,
    payload: Payload | None = None,
    *,
    key: str | None = None,
    run_in: timedelta = timedelta(0),
    queue: str = QUEUE_DEFAULT,
    priority: int = PRIORITY_DEFAULT,
) -> Enqueued:
    """
    Put one job into the queue through `connection` (an asyncpg connection or pool).

    Inside a transaction of the caller the job exists exactly if that transaction commits;
    outside it commits at once. With a `key` there is one job of this kind and key for as
    long as keys are kept, and the answer to every later call is `DuplicateOf`; a key of more
    than 512 bytes is kept as its SHA-256. What Postgres cannot store in a payload's texts (NUL,
    lone surrogates) becomes U+FFFD.

    Raises:
        ValueError: the payload is not JSON, or kind, queue, priority or delay make no sense.
        StoreUnavailable: the database did not answer; the job may or may not exist.

    """
    job = NewJob(
        kind=kind, payload=payload or {}, key=key, run_in=run_in, queue=queue, priority=priority
    )
    return await enqueue_job(connection, job)


async def enqueue_job(connection: Any, job: NewJob, key_ttl: timedelta = KEY_TTL) -> Enqueued:
    """Do the same for a job already described."""
    payload, when = check_job(job), (job.run_in, job.queue, job.priority)
    with translated():
        if job.key is None:
            text = query("insert_job").text
            row = await connection.fetchrow(text, job.kind, payload, *when)
        else:
            text, key = query("enqueue_job").text, storable_key(job.key)
            row = await connection.fetchrow(text, job.kind, payload, key, *when, key_ttl)
    return _answer(row)


async def enqueue_many(
    connection: Connection, jobs: Sequence[NewJob], key_ttl: timedelta = KEY_TTL
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
        async with connection.transaction():
            for start in range(0, len(jobs), CHUNK):
                answers += await _enqueue_chunk(connection, jobs[start : start + CHUNK], key_ttl)
    return answers


async def _enqueue_chunk(
    connection: Connection, jobs: Sequence[NewJob], key_ttl: timedelta
) -> list[Enqueued]:
    if all(getattr(job, "key", "") is None for job in jobs):
        return await copy_jobs(connection, jobs)
    rows = await connection.fetch(query("enqueue_keyed_jobs").text, *columns(jobs), key_ttl)
    rows.sort(key=lambda row: row["place"])
    return [_answer(row) for row in rows]


async def copy_jobs(
    connection: Connection, jobs: Sequence[NewJob], parent_id: JobId | None = None
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
            (job_id, job.kind, check_job(job), f"job:{job_id}", now + job.run_in, job.queue,
             job.priority, parent_id)
            for job_id, job in zip(ids, jobs, strict=True)
        ),
    )  # fmt: skip
    return [Inserted(job_id) for job_id in ids]


def _answer(row: asyncpg.Record) -> Enqueued:
    job_id = JobId(row["job_id"])
    return DuplicateOf(job_id) if row["duplicate"] else Inserted(job_id)


def columns(jobs: Sequence[NewJob]) -> tuple[list[Any], ...]:
    """
    Turn jobs into the arrays the statements take: kinds, payloads, keys, delays, queues, priorities.

    Raises:
        ValueError: a job's payload is not JSON, or its kind, priority or delay make no sense.

    """
    payloads = [check_job(job) for job in jobs]
    return (
        [job.kind for job in jobs],
        payloads,
        [None if job.key is None else storable_key(job.key) for job in jobs],
        [job.run_in for job in jobs],
        [job.queue for job in jobs],
        [job.priority for job in jobs],
    )


def decoded(payload: str) -> Payload:
    """Read a payload as it comes back from the database."""
    value: Payload = json.loads(payload)
    return value
