"""What a worker weighs after a million jobs, beside what it weighed after ten thousand."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio

from reliq.bench.arena import Arena
from reliq.bench.contestant import OURS
from reliq.bench.sample import Sample

EARLY: Final = 10_000
LATE: Final = 1_000_000
LATE_SMALL: Final = 30_000


async def play(arena: Arena, number: int) -> AsyncIterator[Sample]:
    """Drain a long queue by one worker, and look at it twice; once is enough."""
    if number != 1:
        return
    late = LATE_SMALL if arena.is_small else LATE
    async with arena.ground.database(OURS) as dsn:
        arena.tell(f"memory: filling {late} jobs")
        await OURS.ask("fill", late, dsn=dsn)
        async with OURS.working(dsn) as worker, anyio.create_task_group() as tasks:
            await worker.say("go")
            tasks.start_soon(worker.hear, "stopped")
            weight = {}
            for jobs in (EARLY, late):
                while worker.done < jobs:
                    arena.tell(f"memory: {worker.done} of {late} jobs")
                    await anyio.sleep(0.1)
                weight[jobs] = _resident_mib(worker.process.pid)
            await worker.say("stop")
    numbers = {"early_mib": weight[EARLY], "late_mib": weight[late]}
    yield Sample("memory", OURS.name, number, numbers)


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20
