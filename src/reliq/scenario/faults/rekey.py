"""An operator who changes keys while everything runs."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.model.steps import Rekey


@asynccontextmanager
async def harm(_: Rekey, scene: Scene) -> AsyncIterator[Bite]:
    """Run `reliq rekey` once, and write down what it ended with."""
    began = time.monotonic_ns()
    code, said = await scene.stage.operate("operator", "rekey")
    found = re.search(r"with key (\S+)", said)
    key = found[1] if found else None
    scene.recorder.record("driver", "rekeyed", code=code, key=key, began=began)
    yield Bite("operator", 1)
