"""How long things are kept, and whose turn it is to prune."""

from datetime import timedelta

import anyio
import pytest

from reliq.app import App
from reliq.domain.keep import Keep, Keeps
from reliq.settings import Settings
from reliq.wiring.loading import problems
from reliq.worker.beats import Pruning

DAY = timedelta(days=1)
USUAL = Keep(succeeded=DAY, cancelled=2 * DAY, dead=3 * DAY, ignored=4 * DAY)


def test_a_kind_keeps_in_its_own_way_what_it_speaks_of_and_the_rest_as_usual():
    keeps = Keeps(
        usual=USUAL, bodies=9 * DAY, effects=400 * DAY, kinds={"report": Keep(succeeded=365 * DAY)}
    )

    assert keeps.of_jobs() == (
        ["", "report"], [DAY, 365 * DAY], [2 * DAY] * 2, [3 * DAY] * 2, [4 * DAY] * 2,
    )  # fmt: skip
    assert keeps.of_bodies() == (9 * DAY, 3 * DAY, 4 * DAY)


@pytest.mark.parametrize("age", [timedelta(0), -DAY, 40_000 * DAY, "30d", 30])
def test_a_keep_is_a_length_of_time(age):
    with pytest.raises(ValueError, match=r"Keep\(dead=…\) takes a timedelta above 0"):
        Keep(dead=age)


def test_an_app_says_what_is_wrong_with_its_records():
    with pytest.raises(ValueError, match=r"App: keep\['mail'\]=.*: use Keep"):
        App(keep={"mail": DAY})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="App: secrets='iban': use a collection of texts"):
        App(secrets="iban")  # type: ignore[arg-type]


@pytest.mark.parametrize("state", ["dead", "ignored"])
def test_a_dead_letter_of_no_kind_outlives_what_its_job_has_done(state):
    settings = Settings(_env_file=None, database_url="postgresql://nowhere/none")
    keeps = {
        "mail.send": Keep(**{state: 400 * DAY}),
        "report.build": Keep(succeeded=700 * DAY, **{state: 399 * DAY}),
    }

    [problem] = problems(settings, App(keep=keeps))
    assert problem == (
        f"RELIQ_KEEP_EFFECTS=400d must exceed keep['mail.send'] of the App, Keep({state}=400d): "
        "a job that is made anew must find what was done"
    )


class Turns:
    """A pruner that is given turns, and takes its time."""

    def __init__(self, turns: list[bool], *, ends: bool = True) -> None:
        self.turns, self.ends, self.passes, self.asked = turns, ends, 0, []

    async def take_turn(self, lasts: timedelta) -> bool:
        self.asked.append(lasts)
        return self.turns.pop(0)

    async def prune(self) -> dict[str, int]:
        if not self.ends:
            await anyio.sleep_forever()
        self.passes += 1
        return {"jobs": 1}


@pytest.mark.anyio
async def test_a_worker_prunes_when_the_turn_is_its_own():
    turns = Turns([True, False, True])
    pruning = Pruning(pruner=turns, lasts=DAY)
    for _ in range(3):
        await pruning()

    assert (turns.passes, turns.asked) == (2, [DAY] * 3)


@pytest.mark.anyio
async def test_who_prunes_stops_before_the_turn_is_over():
    turns = Turns([True], ends=False)
    with anyio.fail_after(5):
        await Pruning(pruner=turns, lasts=timedelta(milliseconds=20))()

    assert turns.passes == 0


@pytest.mark.anyio
async def test_a_worker_that_is_not_to_prune_takes_no_turn():
    turns = Turns([])
    await Pruning(pruner=turns, lasts=None)()

    assert turns.asked == []
