"""
A few long-lived tasks that run attempts, instead of a task for each: a quarter of its cost.

Starting a task costs more than the bookkeeping of a whole job. A task that runs one attempt
after the other saves that, and an attempt that never waits is over before a second task wakes.
One that meets something a handler left behind (a broken cancel scope, a changed context
variable, a cancellation that nobody took back) ends, so that the next attempt does not inherit it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field

from reliq.worker.hand import Attempt


@dataclass(slots=True)
class Crew:
    """
    Runs attempts in tasks of `group`: as many as are in hand at once, no more.

    `run` runs one attempt, raises nothing, and answers whether its task is fit for another. Not
    tasks of anyio's: a handler that leaves a cancel scope behind would break the group.
    """

    group: asyncio.TaskGroup
    run: Callable[[Attempt], Awaitable[bool]]
    _ready: deque[Attempt] = field(default_factory=deque)
    _idle: list[asyncio.Future[None]] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _context: Context = field(default_factory=copy_context)
    _is_called: bool = False
    """Somebody was woken and has not looked yet: the next is woken when there is more."""

    def start(self, attempt: Attempt) -> None:
        """Have an attempt run soon."""
        self._ready.append(attempt)
        self._call()

    def dismiss(self) -> None:
        """End every task, also one that waits for a thread that cannot be ended."""
        for task in self._tasks:
            task.cancel()

    def _call(self) -> None:
        if self._is_called:
            return
        self._is_called = True
        if self._idle:
            self._idle.pop().set_result(None)
            return
        task = self.group.create_task(self._serve(), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        while True:
            self._is_called = False
            while self._ready:
                attempt = self._ready.popleft()
                if self._ready:
                    self._call()
                is_fit = await self.run(attempt)
                if not is_fit or task.cancelling() or copy_context() != self._context:
                    if self._ready:
                        self._call()
                    return
            called = loop.create_future()
            self._idle.append(called)
            await called
