"""The database's clock jumps, for every connection at once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.model.steps import Clock

_JUMP = """
update drill.clock set shift = shift + make_interval(secs => $1::float8)
returning extract(epoch from shift)::float8
"""


@asynccontextmanager
async def harm(what: Clock, scene: Scene) -> AsyncIterator[Bite]:
    """Move it; it stays where it is: a clock that was wrong and then right has jumped twice."""
    jump_s = scene.stage.scenario.seconds(what.jump) * (-1 if what.back else 1)
    shift_s = await scene.stage.database.ask(_JUMP, jump_s)
    yield Bite("postgres", 1, {"jump_s": jump_s, "shift_s": shift_s})
