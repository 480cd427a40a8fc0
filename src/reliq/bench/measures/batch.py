"""Whether a large batch costs no more for each job than a small one."""

from collections.abc import AsyncIterator
from time import perf_counter
from typing import Final

from reliq.bench.arena import Arena
from reliq.bench.contestant import OURS
from reliq.bench.sample import Sample
from reliq.bench.store import open_store

JOBS: Final = 20_000


async def play(arena: Arena, number: int) -> AsyncIterator[Sample]:
    """Drain the same jobs by claims of 100 and of 1,000."""
    sizes = [100, 1_000]
    arena.dice.shuffle(sizes)
    for size in sizes:
        arena.tell(f"batch: {size}")
        async with arena.ground.database(OURS, JOBS) as dsn, open_store(dsn) as store:
            began_s, cpu_s = perf_counter(), arena.ground.cpu_s()
            await store.drain(size, JOBS)
            numbers = {
                "us_per_job": (perf_counter() - began_s) / JOBS * 1e6,
                "pages_per_job": store.pages_per_job(),
            }
            if cpu_s is not None:
                numbers["server_us"] = ((arena.ground.cpu_s() or 0.0) - cpu_s) / JOBS * 1e6
        yield Sample("batch", str(size), number, numbers)
