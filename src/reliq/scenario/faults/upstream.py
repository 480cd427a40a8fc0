"""Other rules for the upstream."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.model.system import Rule


@asynccontextmanager
async def harm(what: Sequence[Rule], scene: Scene) -> AsyncIterator[Bite]:
    """Answer by them from now on; hits are the calls that were answered so."""
    upstream, recorder = scene.stage.upstream, scene.recorder
    old = upstream.replace(what)
    since = len(recorder.entries)

    async def hits() -> int:
        return sum((x.src, x.e) == ("upstream", "response") for x in recorder.entries[since:])

    yield Bite("upstream", lasts=True, later=hits)
    upstream.replace(old)
