"""What a claim reads among a million jobs of the future and a million that are done."""

from collections.abc import AsyncIterator
from typing import Final

from reliq.bench.arena import Arena
from reliq.bench.contestant import OURS
from reliq.bench.sample import Sample
from reliq.bench.store import KIND, open_store

DUE: Final = 10_000
BATCH: Final = 100
ROUNDS: Final = 3
"""Pages have no noise: more rounds would say the same."""
FULL: Final = 1_000_000
SMALL: Final = 50_000

_ROWS: Final = """
    insert into reliq.jobs (kind, key, run_at, state, ready, reap_at, finished_at)
    select $1, 'b' || n, reliq.now() + $2::float8 * interval '1 day' + n * interval '1 ms',
           $3::text, $3 = 'queued', case when $3 = 'succeeded' then reliq.now() - interval '1 hour' end,
           case when $3 = 'succeeded' then reliq.now() end
    from generate_series(1, $4::bigint) n
"""


async def play(arena: Arena, number: int) -> AsyncIterator[Sample]:
    """Drain the same jobs from an empty table and from a full one."""
    if not 1 <= number <= ROUNDS:
        return
    rows = SMALL if arena.is_small else FULL
    for who, count in (("empty", 0), ("full", rows)):
        arena.tell(f"backlog: among {2 * count} jobs")
        async with arena.ground.database(OURS) as dsn, open_store(dsn) as store:
            if count:
                await store.connection.execute(_ROWS, KIND, 30.0, "queued", count)
                await store.connection.execute(_ROWS, KIND, -1.0, "succeeded", count)
            await store.connection.execute(_ROWS, KIND, -0.5, "queued", DUE)
            await store.connection.execute("vacuum analyze reliq.jobs")
            cpu_s = arena.ground.cpu_s()
            await store.drain(BATCH, DUE)
            numbers = {"pages_per_job": store.pages_per_job()}
            if cpu_s is not None:
                numbers["server_us"] = ((arena.ground.cpu_s() or 0.0) - cpu_s) / DUE * 1e6
        yield Sample("backlog", who, number, numbers)
