"""What each limit costs a job: worked off by the shipped store, beside jobs without any."""

import time
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from reliq.bench.arena import Arena
from reliq.bench.contestant import OURS, BenchFailed
from reliq.bench.protocol import PAYLOAD
from reliq.bench.sample import Sample
from reliq.bench.store import KIND, Store, open_store
from reliq.domain.job import NewJob
from reliq.domain.outcome import Succeed
from reliq.postgres.enqueue import enqueue_many

JOBS: Final = 10_000
JOBS_SMALL: Final = 2_000
BATCH: Final = 100
GROUPS: Final = 100
"""So that a claim finds as many jobs as it asks for, whatever the groups let run."""


class Way(NamedTuple):
    """One sort of limit: what is imposed on the queue, or how many of a group may run."""

    name: str
    limit: str | None = None
    group_running: int = 0


PLAIN: Final = Way("no limit")
WAYS: Final = (
    PLAIN,
    Way("running", "max_running => 1000"),
    Way("rate", "rate => 1e6, burst => 1000000"),
    Way("breaker", "opens_after => 1000"),
    Way("groups of 1", group_running=1),
    Way("groups of 20", group_running=20),
)
"""None of them holds anything back: what is measured is what it costs to ask."""


async def play(arena: Arena, number: int) -> AsyncIterator[Sample]:
    """Enqueue and drain under each limit, in another order every round."""
    jobs, ways = JOBS_SMALL if arena.is_small else JOBS, list(WAYS)
    arena.dice.shuffle(ways)
    found: dict[str, dict[str, float]] = {}
    for way in ways:
        arena.tell(f"limits: {way.name}")
        async with arena.ground.database(OURS) as dsn, open_store(dsn) as store:
            found[way.name] = await _cost(arena, store, way, jobs)
    plain = found[PLAIN.name]["us_per_job"]
    for way in WAYS:
        numbers = found[way.name]
        ratio = {"ratio": numbers["us_per_job"] / plain}
        yield Sample("limits", way.name, number, numbers | ratio)


async def _cost(arena: Arena, store: Store, way: Way, jobs: int) -> dict[str, float]:
    """Measure one drain; `us_per_job` is its processor time of both sides, or the clock's."""
    if way.limit:
        await store.connection.execute(f"select reliq.limit_queue('default', {way.limit})")
    wishes = [
        NewJob(kind=KIND, payload=PAYLOAD, group_key=f"g{n % GROUPS}", group_running=way.group_running)
        if way.group_running else NewJob(kind=KIND, payload=PAYLOAD)
        for n in range(jobs)
    ]  # fmt: skip
    began_s = time.perf_counter()
    await enqueue_many(store.connection, wishes)
    enqueue_us = (time.perf_counter() - began_s) / jobs * 1e6
    await store.connection.execute("vacuum analyze reliq.jobs")
    cpu_s, client_s, began_s = arena.ground.cpu_s(), time.process_time(), time.perf_counter()
    await _drain(store, jobs)
    clock_us = (time.perf_counter() - began_s) / jobs * 1e6
    client_us = (time.process_time() - client_s) / jobs * 1e6
    numbers = {"us_per_job": clock_us, "client_us": client_us, "enqueue_us": enqueue_us}
    if cpu_s is not None:
        server_us = ((arena.ground.cpu_s() or 0.0) - cpu_s) / jobs * 1e6
        numbers |= {"us_per_job": client_us + server_us, "server_us": server_us}
    return numbers


async def _drain(store: Store, jobs: int) -> None:
    while jobs > 0:
        claims = await store.queue.claim_jobs(BATCH)
        if not claims:
            raise BenchFailed(f"nothing can be claimed, and {jobs} jobs are not finished")
        await store.queue.settle_jobs([(claim, Succeed()) for claim in claims])
        jobs -= len(claims)
