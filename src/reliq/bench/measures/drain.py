"""How fast due jobs that do nothing are worked off, by one process and by two."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final

import anyio

from reliq.bench.arena import FEW, Arena
from reliq.bench.contestant import OURS, BenchFailed, Contestant, Working
from reliq.bench.protocol import TELL_EVERY_S
from reliq.bench.sample import Sample

FIRST: Final = 5_000
LEAST: Final = 500
MOST: Final = 30_000
ROUND_S: Final = 1.5
STALL_S: Final = 30.0


async def play(arena: Arena, number: int) -> AsyncIterator[Sample]:
    """Drain, each for about a second."""
    for who in arena.in_turn(number, peers=True):
        for processes in (1, 2) if who.name == OURS.name or number <= FEW else (1,):
            name = "drain" if processes == 1 else "drain2"
            rate = arena.rates.get(who.name)
            jobs = FIRST if rate is None else max(LEAST, min(MOST, int(rate * ROUND_S)))
            arena.tell(f"{name}: {who.name}, {jobs} jobs")
            numbers = await drained(arena, who, jobs, processes)
            arena.rates[who.name] = max(arena.rates.get(who.name, 0), numbers["jobs_per_s"])
            yield Sample(name, who.name, number, numbers)


async def drained(arena: Arena, who: Contestant, jobs: int, processes: int) -> dict[str, float]:
    """
    Drain once.

    The clock runs from the first word of progress to the last job: what starting costs is not
    the queue's. Who has done most by then is timed from `go`. Processor time counts from `go`.
    """
    async with arena.ground.database(who, jobs) as dsn, AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(who.working(dsn)) for _ in range(processes)]
        cpu_s, went = arena.ground.cpu_s(), time.time()
        stopped: list[dict[str, Any]] = []
        async with anyio.create_task_group() as tasks:
            for worker in workers:
                await worker.say("go")
                tasks.start_soon(_hear_out, worker, stopped)
            await _all_done(workers, jobs)
            for worker in workers:
                await worker.say("stop")
        used_s = (arena.ground.cpu_s() or 0.0) - (cpu_s or 0.0)
        left = (await who.ask("left", dsn=dsn))["left"]
    if left:
        raise BenchFailed(f"{who.name} says it is done, and {left} of {jobs} jobs are not finished")
    curve = _together(workers)
    (began, before), ended = curve[0], max(line["at"] for line in stopped)
    if before > jobs / 2:  # it had done most before its first word
        began, before = went, 0
    arena.progress[f"{who.name}, {processes} process{'es' * (processes > 1)}"] = [
        (at - began, done) for at, done in curve
    ]
    numbers = {
        "jobs_per_s": (jobs - before) / max(ended - began, TELL_EVERY_S),
        "client_us": sum(line["cpu_s"] for line in stopped) / jobs * 1e6,
    }
    return numbers | ({} if cpu_s is None else {"server_us": used_s / jobs * 1e6})


def _together(workers: list[Working]) -> list[tuple[float, int]]:
    """Add up what several tell of their progress: (unix time, jobs done by all)."""
    told = sorted((line["at"], n, line["done"]) for n, w in enumerate(workers) for line in w.told)
    done, curve = [0] * len(workers), []
    for at, n, count in told:
        done[n] = count
        curve.append((at, sum(done)))
    return curve


async def _hear_out(worker: Working, stopped: list[dict[str, Any]]) -> None:
    stopped.append(await worker.hear("stopped"))


async def _all_done(workers: list[Working], jobs: int) -> None:
    done, since = 0, anyio.current_time()
    while done < jobs:
        await anyio.sleep(0.02)
        if (now := sum(worker.done for worker in workers)) > done:
            done, since = now, anyio.current_time()
        elif anyio.current_time() - since > STALL_S:
            names = workers[0].name
            raise BenchFailed(f"{names} stands still at {done} of {jobs} jobs")
