"""Small parts of the worker: places, wake-ups, beats, availability, settling through outages."""

import random
from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest

from reliq.domain.job import Claim, Fence, JobId
from reliq.domain.outcome import Settlement, Succeed
from reliq.errors import RequestRefused, StoreUnavailable
from reliq.ports import Settled
from reliq.worker.availability import Availability
from reliq.worker.beats import every
from reliq.worker.hand import HEARD_MAX, Cut, now_s
from reliq.worker.places import Places
from reliq.worker.settler import Settler
from reliq.worker.wakeup import Wakeup
from tests.unit.test_keeper import claim, new_hand, take

pytestmark = pytest.mark.anyio

DICE = random.Random(1)


async def test_a_full_worker_waits_for_a_place():
    places = Places(1)
    places.enter("default")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(places.some_free, anyio.Event())
        await anyio.wait_all_tasks_blocked()
        assert places.free == 0
        places.leave("default")
    assert places.free == 1


def test_a_queue_that_may_not_fill_a_worker_has_its_own_room():
    places = Places(5, {"slow": 2})
    for queue in ("slow", "default", "slow"):
        places.enter(queue)
    assert (places.free, places.rooms) == (2, {"slow": 0})

    for queue in ("default", "slow"):
        places.leave(queue)

    assert (places.free, places.rooms) == (4, {"slow": 1})


async def test_a_stop_ends_the_wait_for_a_place():
    places, stop = Places(1, taken=1), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(places.some_free, stop)
        await anyio.wait_all_tasks_blocked()
        stop.set()


async def test_a_hint_given_while_nobody_waited_is_not_lost():
    wakeup = Wakeup(poll_s=60, dice=DICE)
    wakeup.ring()
    with anyio.fail_after(5):
        await wakeup.next(anyio.Event())


async def test_a_beat_goes_on_after_an_outage():
    acted = []

    async def act() -> None:
        acted.append(len(acted))
        if len(acted) == 1:
            raise StoreUnavailable("away")

    with anyio.move_on_after(5) as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: every(0.01, act, dice=DICE, after_outage_s=0.01))
            while len(acted) < 3:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    assert not scope.cancelled_caught


def test_an_outage_is_spent_only_after_the_budget():
    patient, strict = Availability(budget_s=3600), Availability(budget_s=0)
    for availability in (patient, strict):
        assert not availability.is_spent
        availability.saw(StoreUnavailable("away"))

    assert (patient.is_spent, strict.is_spent) == (False, True)
    assert patient.reason == "away"
    patient.saw(None)
    assert patient.reason is None


class Flaky:
    """Away for the first writes; then remembers what was written."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.written: list[JobId] = []
        self.fences: list[int] = []

    async def settle_jobs(self, settlements: Sequence[tuple[Claim, Settlement]]) -> Settled:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        self.written += [claim.job_id for claim, _ in settlements]
        self.fences += [claim.fence for claim, _ in settlements]
        return Settled(frozenset(), {})


async def test_an_ending_waits_out_an_outage_and_is_written_once():
    hand, store = new_hand(), Flaky(away=2)
    settler = Settler(queue=store, hand=hand, retry_s=0.01, dice=DICE)
    settler.settle(take(hand), Succeed())
    settler.close()

    with anyio.fail_after(5):
        await settler.run()

    assert store.written == [claim().job_id]
    assert hand.attempts() == []


async def test_an_ending_whose_lease_is_over_is_left_to_the_reaper():
    hand, store = new_hand(), Flaky(away=0)
    settler = Settler(queue=store, hand=hand, retry_s=0.01, dice=DICE)
    attempt = take(hand)
    attempt.lease_until_s = 0
    settler.settle(attempt, Succeed())
    settler.close()

    with anyio.fail_after(5):
        await settler.run()

    assert store.written == []
    assert hand.attempts() == []


async def test_without_a_hint_the_poll_comes():
    with anyio.fail_after(5):
        await Wakeup(poll_s=0.01, dice=DICE).next(anyio.Event())


async def test_two_endings_of_one_job_never_share_a_batch():
    """The first one's lease ended before the second was claimed: only the second counts."""
    hand, store = new_hand(), Flaky(away=0)
    settler = Settler(queue=store, hand=hand, retry_s=0.01, dice=DICE)
    old, new = take(hand), replace(take(hand), claim=claim()._replace(fence=Fence(2)))
    for attempt in (new, old):
        settler.settle(attempt, Succeed())
    settler.close()

    with anyio.fail_after(5):
        await settler.run()

    assert store.fences == [2]


class Picky(Flaky):
    """Refuses every batch that holds job 2."""

    async def settle_jobs(self, settlements: Sequence[tuple[Claim, Settlement]]) -> Settled:
        if any(claim.job_id == 2 for claim, _ in settlements):
            raise RequestRefused("the database refuses a value")
        return await super().settle_jobs(settlements)


async def test_an_ending_that_no_table_takes_does_not_take_others_with_it():
    hand, store = new_hand(), Picky(away=0)
    settler = Settler(queue=store, hand=hand, retry_s=0.01, dice=DICE)
    for number in (1, 2, 3):
        [attempt] = hand.take([claim()._replace(job_id=JobId(number))], now_s())
        settler.settle(attempt, Succeed())
    settler.close()

    with anyio.fail_after(5):
        await settler.run()

    assert store.written == [1, 3]


async def test_a_job_claimed_anew_stops_the_attempt_before():
    hand = new_hand()
    old = take(hand)

    hand.take([claim()._replace(fence=Fence(2))], now_s())

    assert old.cut is Cut.LOST


async def test_what_is_held_is_never_unheard_of_however_much_came_after():
    hand = new_hand()
    take(hand)

    for number in range(2, HEARD_MAX + 10):
        [attempt] = hand.take([claim()._replace(job_id=JobId(number))], now_s())
        hand.drop([attempt])

    assert claim().held in hand.heard()


async def test_an_abandoned_thread_keeps_its_place_and_holds_up_nobody():
    places = Places(2)
    places.enter("default")
    places.end()

    with anyio.fail_after(5):
        await places.all_ended()
    assert places.free == 1
