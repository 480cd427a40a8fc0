"""
The worker's second loop: a thread for all that must go on when a handler blocks the first.

A handler that computes for a minute without awaiting stops the main loop, and with it every
task there. Renewals, the reaper, the scheduler and the health answers run here instead, with
connections of their own. Code that holds the interpreter's lock in one call for longer than a
lease stops both loops; that is said in GUARANTEES.
"""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread

Main = Callable[[anyio.Event], Awaitable[None]]
"""What runs there: until the event it is given is set."""


class SecondLoop:
    """Runs `main` in a thread with a loop of its own."""

    def __init__(self, main: Main) -> None:
        self._main = main
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: anyio.Event | None = None
        self._is_stopped = False

    async def run(self) -> None:
        """Run until `stop`, or until cancelled; what goes wrong there is raised here."""
        try:
            await anyio.to_thread.run_sync(anyio.run, self._thread, abandon_on_cancel=True)
        finally:
            self.stop()

    def stop(self) -> None:
        """Have it end; never waits for it."""
        self._is_stopped = True
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _thread(self) -> None:
        self._stop, self._loop = anyio.Event(), asyncio.get_running_loop()
        if not self._is_stopped:
            await self._main(self._stop)
