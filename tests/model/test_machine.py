"""The shipped SQL does what the model does. Seeds are fixed, so every run is the same."""

from collections.abc import Collection, Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.database import Database, open_database, shipped
from tests.model.machine import QueueMachine

PARTS = 10
STEPS = 20_000 // PARTS

GAME = settings(
    # From ten examples on, Hypothesis spends many on the smallest and on variations of what it
    # saw. Many short games find more.
    max_examples=9,
    stateful_step_count=50,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def games(n: int) -> Iterator[int]:
    """Name the seeds of games, as many as it takes; no two `n` share one."""
    return count(n, 1_000)


def play(database: Database, game: int, phases: Collection[Phase]) -> int:
    """Let the machine play; return how many steps it made."""
    machines: list[QueueMachine] = []

    def machine() -> QueueMachine:
        machines.append(QueueMachine(database))
        return machines[-1]

    run_state_machine_as_test(seed(game)(machine), settings=settings(GAME, phases=phases))
    return sum(machine.steps for machine in machines)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_shipped_sql_does_what_the_model_does(dsn: str, part: int):
    steps = 0
    with open_database(dsn, shipped()) as database:
        for game in games(part):
            steps += play(database, game, (Phase.generate, Phase.shrink))
            if steps >= STEPS:
                break
