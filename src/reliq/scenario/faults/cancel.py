"""An operator who cancels jobs: those that wait, and those that run."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.model.steps import Cancel

_OPEN = """
select array_agg(id order by id) from reliq.jobs
where state in ('queued', 'running') and ($1::text is null or kind = $1)
"""


@asynccontextmanager
async def harm(what: Cancel, scene: Scene) -> AsyncIterator[Bite]:
    """Run one `reliq cancel` for all that have not ended; those that end meanwhile are refused."""
    jobs = await scene.stage.database.ask(_OPEN, what.kind) or []
    if jobs:
        began = time.monotonic_ns()
        words = ("cancel", *map(str, jobs), "--by", "operator", "--why", "drill")
        code, _ = await scene.stage.operate("operator", *words)
        scene.recorder.record("driver", "cancelled", jobs=jobs, code=code, began=began)
    yield Bite("operator", len(jobs))
