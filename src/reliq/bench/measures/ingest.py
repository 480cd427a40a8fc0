"""How many signed deliveries a receiver stores, beside bare inserts of the same rows."""

import hashlib
import hmac
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from subprocess import DEVNULL
from typing import Any, Final

import anyio
import asyncpg
from anyio.streams.buffered import BufferedByteReceiveStream

from reliq.bench.arena import Arena
from reliq.bench.contestant import CODE, OURS, RAW, BenchFailed, Contestant
from reliq.bench.protocol import PAYLOAD
from reliq.bench.sample import Sample
from reliq.servers.loopback import HOST, free_port

SENDERS: Final = 16
DELIVERIES: Final = 3_000
WARMING: Final = 500
"""Before them, for connections to be open and plans to be made."""

SECRET: Final = "bench-secret"  # noqa: S105 - of a receiver that lives for seconds
START_S: Final = 20.0
SHORT: Final = "raw, one statement"

_EVENT: Final = """
    insert into reliq.events (source, dedup_key, headers, body)
    values ('bench', $1, '{"content-type": "application/json"}', $2) returning id
"""
_EVENT_KEY: Final = """
    insert into reliq.event_keys values ('bench', $1, $2, now() + interval '35 days')
"""
_JOB: Final = """
    insert into reliq.jobs (kind, payload, key, event_id)
    values ('bench.noop', $1, 'event:' || $2::bigint, $2) returning id
"""
_JOB_KEY: Final = """
    insert into reliq.job_keys
    values ('bench.noop', 'event:' || $1::bigint, $2, now() + interval '35 days')
"""
_ONE_STATEMENT: Final = """
    with event as (
      insert into reliq.events (source, dedup_key, headers, body)
      values ('bench', $1, '{"content-type": "application/json"}', $2) returning id
    ), key as (
      insert into reliq.event_keys
      select 'bench', $1, id, now() + interval '35 days' from event
    ), job as (
      insert into reliq.jobs (kind, payload, key, event_id)
      select 'bench.noop', $3, 'event:' || id, id from event returning id
    )
    insert into reliq.job_keys
    select 'bench.noop', 'event:' || $1, id, now() + interval '35 days' from job
"""

_LENGTH: Final = re.compile(rb"content-length: (\d+)")


async def play(arena: Arena, number: int) -> AsyncIterator[Sample]:
    """Send to one receiver over 16 connections, and insert over 16 connections."""
    for who in [*arena.in_turn(number, peers=False), Contestant(SHORT, ())]:
        arena.tell(f"ingest: {who.name}")
        async with arena.ground.database(OURS) as dsn:
            if who.name == RAW.name:
                seconds = await _raw(dsn, _insert)
            elif who.name == SHORT:
                seconds = await _raw(dsn, _insert_in_one)
            else:
                async with _receiver(dsn) as port:
                    seconds = await _all(lambda keys: _send(port, keys))
        yield Sample("ingest", who.name, number, {"stored_per_s": DELIVERIES / seconds})


async def _all(work: Callable[[Iterator[int]], Coroutine[Any, Any, None]]) -> float:
    began_s = 0.0
    for keys in (range(-WARMING, 0), range(DELIVERIES)):
        numbers, began_s = iter(keys), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for _ in range(SENDERS):
                tasks.start_soon(work, numbers)
    return time.perf_counter() - began_s


async def _raw(
    dsn: str, insert: Callable[[asyncpg.Pool, Iterator[int]], Coroutine[Any, Any, None]]
) -> float:
    async with asyncpg.create_pool(dsn, min_size=SENDERS, max_size=SENDERS) as pool:
        return await _all(lambda keys: insert(pool, keys))


async def _insert(pool: asyncpg.Pool, keys: Iterator[int]) -> None:
    """As one would write it: a transaction, and an insert for each table."""
    payload = json.dumps(PAYLOAD)
    async with pool.acquire() as connection:
        for key in keys:
            async with connection.transaction():
                event = await connection.fetchval(_EVENT, str(key), _body(key))
                await connection.execute(_EVENT_KEY, str(key), event)
                job = await connection.fetchval(_JOB, payload, event)
                await connection.execute(_JOB_KEY, event, job)


async def _insert_in_one(pool: asyncpg.Pool, keys: Iterator[int]) -> None:
    """In one statement that knows of no duplicates."""
    payload = json.dumps(PAYLOAD)
    async with pool.acquire() as connection:
        for key in keys:
            await connection.execute(_ONE_STATEMENT, str(key), _body(key), payload)


async def _send(port: int, keys: Iterator[int]) -> None:
    """Speak as little HTTP as will do: a client library costs more than the receiver."""
    async with await anyio.connect_tcp(HOST, port) as stream:
        answers = BufferedByteReceiveStream(stream)
        for key in keys:
            body = _body(key)
            proof = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            await stream.send(
                f"POST /hooks/bench HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
                f"X-Signature: {proof}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            head = (await answers.receive_until(b"\r\n\r\n", 4_096)).lower()
            await answers.receive_exactly(int(_LENGTH.findall(head)[0]))
            if not head.startswith(b"http/1.1 202"):
                raise BenchFailed(
                    f"a delivery was answered with {head!r}: is the machine busy? run it again"
                )


def _body(key: int) -> bytes:
    return json.dumps({"id": key, **PAYLOAD}).encode()


@asynccontextmanager
async def _receiver(dsn: str) -> AsyncIterator[int]:
    port = free_port()
    env = {
        "RELIQ_DATABASE_URL": dsn, "RELIQ_APP": "reliq.bench.ours:app", "RELIQ_PORT": str(port),
        "RELIQ_SECRETS__BENCH": SECRET, "RELIQ_LOG": "json", "PATH": "/usr/bin:/bin",
        "PYTHONPATH": CODE,
    }  # fmt: skip
    async with await anyio.open_process(
        [sys.executable, "-m", "reliq", "serve"], env=env, stdout=DEVNULL, stderr=DEVNULL
    ) as process:
        try:
            with anyio.fail_after(START_S):
                while not await _answers(port):
                    await anyio.sleep(0.05)
            yield port
        finally:
            process.terminate()


async def _answers(port: int) -> bool:
    try:
        async with await anyio.connect_tcp(HOST, port) as stream:
            await stream.send(b"GET /ready HTTP/1.1\r\nHost: bench\r\n\r\n")
            return (await stream.receive()).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
