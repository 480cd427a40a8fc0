"""
The shipped SQL does what the model does, and the machine that says so has been seen to object.

Seeds are fixed, so every run is the same. `RELIQ_MODEL_SEEDS=5` kills each mutant five
times, from five beginnings; one is what `make test` takes time for.
"""

import os
from collections.abc import Collection, Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.stateful import run_state_machine_as_test

from tests.model.database import Database, Difference, open_database, shipped
from tests.model.machine import SUBJECTS, new_machine
from tests.model.mutants import MUTANTS, Change, changed
from tests.model.player import Player

PARTS = 10
STEPS = 20_000 // PARTS

SEEDS = int(os.getenv("RELIQ_MODEL_SEEDS", "1"))
CALLS_MAX = 2_000
"""Within so many calls a mutant is found out."""

GAME = settings(
    # From ten examples on, Hypothesis spends many on the smallest and on variations of what it
    # saw. Many short games find more.
    max_examples=9,
    stateful_step_count=50,
    database=None,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def _nothing_of_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Play the same games whatever else was imported.

    Hypothesis mixes numbers and texts of all modules of the project that are loaded into what it
    draws, so that seeds alone do not fix a run. It has no setting for that.
    """
    monkeypatch.setattr(providers, "_get_local_constants", providers.Constants)
    providers.CONSTANTS_CACHE.cache.clear()


def games(n: int) -> Iterator[int]:
    """Name the seeds of games, as many as it takes; no two `n` share one."""
    return count(n, 1_000)


def play(database: Database, game: int, phases: Collection[Phase], *subjects: type[Player]) -> int:
    """Let a machine play; return how many steps it made."""
    machines: list[Player] = []

    def machine() -> Player:
        machines.append(new_machine(database, *subjects))
        return machines[-1]

    run_state_machine_as_test(seed(game)(machine), settings=settings(GAME, phases=phases))
    return sum(machine.steps for machine in machines)


@pytest.mark.timeout(600)  # a difference is worth the time it takes to make the game short
@pytest.mark.parametrize("part", range(PARTS))
def test_the_shipped_sql_does_what_the_model_does(dsn: str, part: int):
    steps = 0
    with open_database(dsn, shipped()) as database:
        for game in games(part):
            steps += play(database, game, (Phase.generate, Phase.shrink), *SUBJECTS)
            if steps >= STEPS:
                break


@pytest.mark.parametrize("n", range(SEEDS))
@pytest.mark.parametrize(
    ("subject", "name"), [(subject, name) for subject in MUTANTS for name in MUTANTS[subject]]
)
def test_a_mutant_is_found_out(dsn: str, subject: type[Player], name: str, n: int, record_property):
    """By a machine that plays its subject: who plays everything takes longer to come to it."""
    with open_database(dsn, changed(shipped(), MUTANTS[subject][name])) as database:
        with pytest.raises(Difference):
            for game in games(n):
                play(database, game, (Phase.generate,), subject)
                assert database.calls <= CALLS_MAX, "it survives"

        record_property("calls", database.calls_to_difference)
        assert database.calls_to_difference <= CALLS_MAX


def test_a_mutant_that_no_longer_fits_is_refused():
    with pytest.raises(ValueError, match="claim_jobs has 'no such words' 0 times, not once"):
        changed(shipped(), [Change("claim_jobs", "no such words")])
