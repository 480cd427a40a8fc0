"""Play measures in interleaved rounds."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from reliq.bench.arena import Arena
from reliq.bench.contestant import OURS, RAW, Contestant, peers_in
from reliq.bench.ground import open_ground
from reliq.bench.measures import MEASURES
from reliq.bench.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Everything that was found."""

    samples: Sequence[Sample]
    about: Sequence[dict[str, Any]]
    postgres: str
    progress: dict[str, list[tuple[float, int]]]

    def plain(self) -> dict[str, Any]:
        """Return it in the words of JSON."""
        return {
            "postgres": self.postgres, "python": sys.version.split()[0],
            "about": list(self.about), "samples": [asdict(sample) for sample in self.samples],
        }  # fmt: skip


def _in_round(tell: Callable[[str], None], which: str, what: str) -> None:
    tell(f"{which}: {what}")


async def play(
    names: Sequence[str],
    *,
    rounds: int,
    dsn: str | None,
    peers: Path | None,
    is_small: bool,
    tell: Callable[[str], None],
) -> Played:
    """
    Warm everything up in a round that does not count, then play `rounds` of it.

    Raises:
        BenchFailed: a contestant did not do what it was asked.
        ServerFailed: there is no Postgres.

    """
    contestants: list[Contestant] = [OURS, RAW, *(peers_in(peers) if peers else [])]
    samples: list[Sample] = []
    async with open_ground(dsn) as ground:
        arena = Arena(
            ground=ground, contestants=contestants, is_small=is_small, tell=tell, dice=Random(1)  # noqa: S311
        )  # fmt: skip
        about = [await who.ask("about") for who in contestants]
        for number in range(rounds + 1):
            for name in names:
                arena.tell = partial(_in_round, tell, f"round {number} of {rounds}")
                found = [sample async for sample in MEASURES[name](arena, number)]
                samples += found if number else []
        return Played(
            samples=samples, about=about, postgres=ground.version, progress=arena.progress
        )
