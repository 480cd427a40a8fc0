"""Operators at their desks, who all ask for the same dead letters to be made anew."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.model.steps import Requeue

_DEAD = """
select array_agg(id order by id) from reliq.jobs
where state = 'dead' and ($1::text is null or kind = $1)
"""


@asynccontextmanager
async def harm(what: Requeue, scene: Scene) -> AsyncIterator[Bite]:
    """Run `reliq retry` for every dead letter, or for all of a kind; all operators at once."""
    dead = await scene.stage.database.ask(_DEAD, what.kind) or []
    async with anyio.create_task_group() as desks:
        for n in range(1, what.operators + 1):
            if what.kind is not None:
                desks.start_soon(_ask_for_all, scene, f"operator-{n}", what.kind, dead)
                continue
            for job in dead:
                desks.start_soon(_ask, scene, f"operator-{n}-{job}", job)
    yield Bite("operators", len(dead) * what.operators)


async def _ask(scene: Scene, name: str, job: int) -> None:
    began = time.monotonic_ns()
    code, said = await scene.stage.operate(name, "retry", str(job), "--by", name)
    words = said.split()
    new = int(words[0]) if code == 0 and words and words[0].isdigit() else None
    scene.recorder.record("driver", "requeued", job=job, code=code, new=new, began=began)


async def _ask_for_all(scene: Scene, name: str, kind: str, dead: list[int]) -> None:
    """Ask once, and write down what was said of each."""
    began = time.monotonic_ns()
    code, said = await scene.stage.operate(name, "retry", "--kind", kind, "--by", name, "--json")
    jobs = json.loads(said)["jobs"] if code == 0 else []
    made = {each["dead"]: each["job"] for each in jobs}
    for job in dead:
        new = made.get(job)
        scene.recorder.record("driver", "requeued", job=job, code=code, new=new, began=began)
