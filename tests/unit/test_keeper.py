"""Leases are kept, or their handlers stopped in time, whatever the store does."""

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta

import anyio
import pytest
import structlog

from reliq.domain.job import Claim, Fence, JobId, Kind
from reliq.errors import StoreUnavailable
from reliq.ports import Held
from reliq.worker.hand import Attempt, Cut, Hand, now_s
from reliq.worker.keeper import Keeper
from reliq.worker.lines import lease_lost

pytestmark = pytest.mark.anyio

LEASE_S = 0.6


class Keeping:
    async def renew_leases(self, held: Sequence[Held]) -> Mapping[JobId, bool]:
        return {job_id: False for job_id, _ in held}


class Refusing:
    async def renew_leases(self, held: Sequence[Held]) -> Mapping[JobId, bool]:
        return {}


class Away:
    async def renew_leases(self, held: Sequence[Held]) -> Mapping[JobId, bool]:
        raise StoreUnavailable("away")


class BlackHole:
    async def renew_leases(self, held: Sequence[Held]) -> Mapping[JobId, bool]:
        await anyio.sleep_forever()
        raise AssertionError


class Cancelling:
    async def renew_leases(self, held: Sequence[Held]) -> Mapping[JobId, bool]:
        return {job_id: True for job_id, _ in held}


def claim() -> Claim:
    return Claim(
        job_id=JobId(1), fence=Fence(1), kind=Kind("job"), key="k", payload_json="{}", attempt=1,
        attempts_max=8, lost_leases=0, event_id=None, waited=timedelta(0),
    )  # fmt: skip


def take(hand: Hand) -> Attempt:
    [attempt] = hand.take([claim()], now_s())
    return attempt


def new_hand() -> Hand:
    import asyncio  # noqa: PLC0415 - the loop of the test

    return Hand(asyncio.get_running_loop(), LEASE_S)


@pytest.mark.parametrize(
    "leases", [Refusing(), Away(), BlackHole()], ids=lambda x: type(x).__name__
)
async def test_a_handler_is_stopped_before_a_lease_that_cannot_be_renewed_ends(leases):
    hand = new_hand()
    attempt = take(hand)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Keeper(hand=hand, leases=leases, lease_s=LEASE_S).run)
        with anyio.fail_after(5), attempt.scope:
            await anyio.sleep_forever()
        stopped_at_s = now_s()
        tasks.cancel_scope.cancel()

    assert attempt.cut is Cut.LOST
    assert hand.attempts() == []
    assert stopped_at_s <= attempt.lease_until_s + LEASE_S / 3  # behaviour: noise of the machine


async def test_a_kept_lease_is_renewed_for_as_long_as_the_attempt_may_run():
    hand = new_hand()
    attempt = take(hand)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Keeper(hand=hand, leases=Keeping(), lease_s=LEASE_S).run)
        with anyio.move_on_after(LEASE_S * 3), attempt.scope:
            await anyio.sleep_forever()
        tasks.cancel_scope.cancel()

    assert attempt.cut is None


async def test_a_hung_handler_cannot_hold_its_job_for_ever():
    hand = new_hand()
    attempt = take(hand)
    attempt.time_up_s = now_s()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Keeper(hand=hand, leases=Keeping(), lease_s=LEASE_S).run)
        with anyio.fail_after(5), attempt.scope:
            await anyio.sleep_forever()
        tasks.cancel_scope.cancel()

    assert attempt.cut is Cut.LOST


async def test_a_renewal_that_tells_of_a_cancel_stops_the_handler_and_lengthens_nothing():
    hand = new_hand()
    attempt = take(hand)
    granted_until_s = attempt.lease_until_s
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Keeper(hand=hand, leases=Cancelling(), lease_s=LEASE_S).run)
        with anyio.fail_after(5), attempt.scope:
            await anyio.sleep_forever()
        tasks.cancel_scope.cancel()

    assert attempt.cut is Cut.CANCELLED
    assert hand.attempts() == [attempt]
    assert attempt.lease_until_s == granted_until_s


async def test_a_handler_that_does_not_heed_a_cancel_is_abandoned_with_its_lease_and_told_of_once():
    hand = new_hand()
    take(hand)
    with structlog.testing.capture_logs() as lines:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Keeper(hand=hand, leases=Cancelling(), lease_s=LEASE_S).run)
            with anyio.fail_after(5):
                while hand.attempts():
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    assert [(line["event"], line["job_id"]) for line in lines] == [("attempt.abandoned", 1)]


async def test_a_settlement_on_its_way_is_no_lost_lease():
    hand = new_hand()
    attempt = take(hand)
    attempt.is_settling = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Keeper(hand=hand, leases=Refusing(), lease_s=LEASE_S).run)
        with anyio.fail_after(5):
            while hand.attempts():
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()

    assert attempt.cut is None


async def test_a_lease_lost_in_another_thread_stops_the_handler_in_its_loop():
    hand = new_hand()
    attempt = take(hand)

    thread = threading.Thread(target=hand.lose, args=(attempt,))
    thread.start()
    with anyio.fail_after(5), attempt.scope:
        await anyio.sleep_forever()
    thread.join()

    assert attempt.cut is Cut.LOST


async def test_a_lost_lease_is_told_once_whoever_finds_out():
    attempt = take(new_hand())
    with structlog.testing.capture_logs() as lines:
        lease_lost(attempt, "not renewed in time")
        lease_lost(attempt, "not settled in time")

    assert [line["why"] for line in lines] == ["not renewed in time"]


async def test_the_connection_is_open_before_the_first_lease_needs_it():
    asked: list[Sequence[Held]] = []

    class Counting(Keeping):
        async def renew_leases(self, held: Sequence[Held]) -> Mapping[JobId, bool]:
            asked.append(held)
            return await super().renew_leases(held)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Keeper(hand=new_hand(), leases=Counting(), lease_s=3600).run)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert asked == [[]]
