"""How fast jobs get into the queue: one by one from 1 and 16 clients, with a key, and in bulk."""

from collections.abc import AsyncIterator
from typing import Final

from reliq.bench.arena import FEW, Arena
from reliq.bench.sample import Sample

SINGLE: Final = 1_000
MANY: Final = 4_000
CLIENTS: Final = 16
BULK: Final = 100_000
BULK_SMALL: Final = 10_000
BULK_S: Final = 2.0
"""Who is slow puts in fewer."""


async def play(arena: Arena, number: int) -> AsyncIterator[Sample]:
    """Enqueue in every way, each contestant on a database of its own."""
    bulk = BULK_SMALL if arena.is_small else BULK
    ways: list[tuple[str, tuple[object, ...], bool]] = [
        ("enqueue 1", ("enqueue", SINGLE, 1), number <= FEW),
        (f"enqueue {CLIENTS}", ("enqueue", MANY, CLIENTS), number <= FEW),
        ("enqueue keyed", ("enqueue", SINGLE, 1, "keyed"), False),
        ("enqueue bulk", ("fill", bulk), True),
    ]
    for name, words, peers in ways:
        for who in arena.in_turn(number, peers=peers):
            if (rate := arena.rates.get(f"{name} {who.name}")) is not None:
                words = ("fill", min(bulk, int(rate * BULK_S)))  # noqa: PLW2901 - of this one
            arena.tell(f"{name}: {who.name}")
            async with arena.ground.database(who) as dsn:
                cpu_s = arena.ground.cpu_s()
                told = await who.ask(*words, dsn=dsn)
                used_s = (arena.ground.cpu_s() or 0.0) - (cpu_s or 0.0)
            if name == "enqueue bulk":
                arena.rates[f"{name} {who.name}"] = told["jobs"] / told["seconds"]
            numbers = {
                "jobs_per_s": told["jobs"] / told["seconds"],
                "client_us": told["cpu_s"] / told["jobs"] * 1e6,
            }
            if cpu_s is not None:
                numbers["server_us"] = used_s / told["jobs"] * 1e6
            yield Sample(name, who.name, number, numbers)
