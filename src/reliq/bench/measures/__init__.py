"""What is measured: one module for each, with `play(bench, number)`, which plays one round."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from reliq.bench.arena import Arena
from reliq.bench.measures import (
    backlog,
    batch,
    drain,
    enqueue,
    idle,
    ingest,
    latency,
    limit,
    limits,
    memory,
    snapshot,
)
from reliq.bench.sample import Sample

Play = Callable[[Arena, int], AsyncIterator[Sample]]

MEASURES: Final[dict[str, Play]] = {
    "enqueue": enqueue.play, "drain": drain.play, "latency": latency.play,
    "backlog": backlog.play, "snapshot": snapshot.play, "ingest": ingest.play,
    "limit": limit.play, "limits": limits.play, "batch": batch.play, "idle": idle.play, "memory": memory.play,
}  # fmt: skip
