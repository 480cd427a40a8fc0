"""The tasks that run attempts: few, reused, and never handing on what a handler left behind."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from reliq.worker.crew import Crew

pytestmark = pytest.mark.anyio

TENANT: ContextVar[str] = ContextVar("TENANT", default="nobody")

Does = Callable[[], Coroutine[Any, Any, bool]]


async def run_all(*works: Does, at_once: bool = True) -> None:
    """Run each in a crew, all started before the first begins, or one after the other."""
    left = len(works)
    over = anyio.Event()

    async def run(work: Any) -> bool:
        nonlocal left
        try:
            return await work()
        finally:
            left -= 1
            if not left:
                over.set()

    async with asyncio.TaskGroup() as group:
        crew = Crew(group, run)
        for n, work in enumerate(works):
            crew.start(work)  # type: ignore[arg-type] - it hands on what it is given
            while not at_once and left > len(works) - n - 1:
                await asyncio.sleep(0)
        with anyio.fail_after(5):
            await over.wait()
        crew.dismiss()


async def test_attempts_that_never_wait_share_one_task():
    tasks = set()

    async def quick() -> bool:
        tasks.add(asyncio.current_task())
        return True

    await run_all(*[quick] * 50)

    assert len(tasks) == 1


async def test_attempts_that_wait_run_side_by_side():
    met = asyncio.Barrier(20)

    async def waits() -> bool:
        await met.wait()
        return True

    await run_all(*[waits] * 20)


async def test_a_task_is_used_again_after_it_was_idle():
    tasks = []

    async def note() -> bool:
        tasks.append(asyncio.current_task())
        return True

    await run_all(*[note] * 3, at_once=False)

    assert len(tasks) == 3
    assert len(set(tasks)) == 1


async def test_what_one_handler_puts_into_its_context_no_other_sees():
    seen = []

    async def enters() -> bool:
        seen.append(TENANT.get())
        TENANT.set("acme")
        return True

    await run_all(*[enters] * 5)

    assert seen == ["nobody"] * 5


async def test_a_task_that_was_broken_runs_nothing_more():
    tasks = []

    async def breaks() -> bool:
        tasks.append(asyncio.current_task())
        return False

    await run_all(*[breaks] * 4)

    assert len(set(tasks)) == 4


async def test_a_cancellation_that_was_swallowed_does_not_reach_the_next():
    counts = []

    async def swallows() -> bool:
        task = asyncio.current_task()
        assert task is not None
        counts.append(task.cancelling())
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return True

    await run_all(*[swallows] * 3)

    assert counts == [0, 0, 0]
