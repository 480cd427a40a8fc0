"""How long it takes from the call that enqueues to the start of the handler, on an idle worker."""

from collections.abc import AsyncIterator
from statistics import quantiles
from typing import Final

from reliq.bench.arena import Arena
from reliq.bench.contestant import RAW
from reliq.bench.sample import Sample

JOBS: Final = 40
EVERY_MS: Final = 50
LEFT_OUT: Final = 10
"""The first ones: connections open, plans are made."""


async def play(arena: Arena, number: int) -> AsyncIterator[Sample]:
    """Let everyone who has a worker be woken a few dozen times."""
    for who in arena.in_turn(number, peers=True):
        if who.name == RAW.name:
            continue
        arena.tell(f"latency: {who.name}")
        async with arena.ground.database(who) as dsn:
            told = await who.ask("latency", JOBS + LEFT_OUT, EVERY_MS, dsn=dsn)
        cuts = quantiles(told["ms"][LEFT_OUT:], n=100, method="inclusive")
        numbers = {"p50_ms": cuts[49], "p95_ms": cuts[94], "p99_ms": cuts[98]}
        yield Sample("latency", who.name, number, numbers)
