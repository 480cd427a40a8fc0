"""What a claim reads after much churn while somebody holds an old snapshot, and while nobody does."""

import time
from collections.abc import AsyncIterator
from typing import Final

import asyncpg

from reliq.bench.arena import Arena
from reliq.bench.contestant import OURS
from reliq.bench.sample import Sample
from reliq.bench.store import KIND, open_store

CHUNK: Final = 20_000
CHUNKS: Final = 8
CHUNKS_SMALL: Final = 2
BATCH: Final = 100
ROUNDS: Final = 3
"""Pages have no noise: more rounds would say the same."""

_ROWS: Final = """
    insert into reliq.jobs (kind, key) select $1, 's' || n from generate_series(1, $2::bigint) n
"""


async def play(arena: Arena, number: int) -> AsyncIterator[Sample]:
    """Fill and drain chunk after chunk."""
    if not 1 <= number <= ROUNDS:
        return
    chunks = CHUNKS_SMALL if arena.is_small else CHUNKS
    for who in ("held", "free"):
        async with arena.ground.database(OURS) as dsn, open_store(dsn) as store:
            holder = await asyncpg.connect(dsn)
            if who == "held":
                await holder.execute("begin isolation level repeatable read")
                await holder.fetchval("select count(*) from reliq.jobs")
            found, curve, began, done = [], [], time.monotonic(), 0
            for chunk in range(chunks):
                arena.tell(f"snapshot: {who}, {chunk * CHUNK} jobs churned")
                await store.connection.execute(_ROWS, KIND, CHUNK)
                await store.drain(BATCH, CHUNK)
                found.append(store.pages_per_job())
                done += CHUNK
                curve.append((time.monotonic() - began, done))
            holder.terminate()
        arena.progress[f"snapshot {who}"] = curve
        numbers = {"pages_per_job_first": found[0], "pages_per_job_last": found[-1]}
        yield Sample("snapshot", who, number, numbers)
