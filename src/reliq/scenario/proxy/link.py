"""
One connection through a proxy: two pipes, and in each the toxics of its direction.

A pipe reads ahead into a queue, so that the age of data is known, and moves one chunk after the
other through its toxics. When a pipe has ended, its target is closed; the other pipe then has no
source any more, still delivers what it holds, and closes the client's or the server's side in
turn. There is no half-closed state in between, as with Toxiproxy.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Iterable
from functools import partial
from math import inf
from typing import Final

import anyio

from reliq.scenario.proxy.toxic import Chunk, Cut, Meeting, Toxic

_READ: Final = 32 * 1024
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, for 0 seconds: closing sends a reset and drops what was not sent."""


class Pipe:
    """One direction: from `source` through the toxics to `target`."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self._source, self.target = source, target
        self._meetings: list[Meeting] = []
        self._queue: deque[Chunk | None] = deque()
        self._stirred = anyio.Event()
        self._reading = anyio.CancelScope()
        self._read = anyio.Event()
        self._moving = anyio.CancelScope()

    def meet(self, meeting: Meeting) -> None:
        """Put a toxic at the end of the chain, at once."""
        self._meetings.append(meeting)
        self._stir()

    def lift(self, toxic: Toxic, *, removed: bool) -> None:
        """Take note that a toxic was removed or changed."""
        for meeting in [found for found in self._meetings if found.toxic is toxic]:
            if removed:
                self._meetings.remove(meeting)
                if meeting.acts and toxic.behaviour.closes_when_removed:
                    meeting.hit_once()
                    self._moving.cancel()
            meeting.lift(removed=removed)
        self._stir()

    async def run(self) -> bool:
        """Move data until one side or a toxic ends it; return whether that was a reset."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_ahead)
            try:
                with self._moving:
                    await self._move()
            except Cut as cut:
                return cut.reset
            except OSError:
                pass  # The target is gone, and so is the way.
            finally:
                self._reading.cancel()
        return False

    async def lose_source(self) -> None:
        """Read no more; when this returns the source may be closed."""
        self._reading.cancel()
        await self._read.wait()

    async def _read_ahead(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            with self._reading:
                while data := await loop.sock_recv(self._source, _READ):
                    self._queue.append(Chunk(data, anyio.current_time()))
                    self._stir()
                    while len(self._queue) >= self._room():
                        await self._stirred.wait()
        except OSError:
            pass  # A source that was reset has ended too.
        finally:
            self._queue.append(None)
            self._stir()
            self._read.set()

    async def _move(self) -> None:
        while True:
            while not self._queue:
                await self._wait_for_data()
            chunk = self._queue.popleft()
            self._stir()
            if chunk is None:
                break
            await self._pass(tuple(self._meetings), chunk)
        for meeting in self._acting():
            await meeting.toxic.behaviour.end(meeting)

    async def _wait_for_data(self) -> None:
        least = min(self._acting(), key=_patience, default=None)
        with anyio.move_on_after(inf if least is None else _patience(least)) as quiet:
            await self._stirred.wait()
        if quiet.cancelled_caught and least is not None:
            least.hit_once()
            raise Cut

    async def _pass(self, meetings: tuple[Meeting, ...], chunk: Chunk) -> None:
        if not meetings:
            await asyncio.get_running_loop().sock_sendall(self.target, chunk.data)
            return
        meeting, *others = meetings
        send = partial(self._pass, tuple(others))
        if meeting.acts:
            await meeting.toxic.behaviour.data(chunk, meeting, send)
        else:
            await send(chunk)

    def _acting(self) -> list[Meeting]:
        return [meeting for meeting in self._meetings if meeting.acts]

    def _room(self) -> int:
        return max((meeting.toxic.behaviour.room for meeting in self._acting()), default=1)

    def _stir(self) -> None:
        self._stirred.set()
        self._stirred = anyio.Event()


class Link:
    """A connection of a client with what stands behind the proxy."""

    def __init__(
        self, number: int, client: socket.socket, server: socket.socket, toxics: Iterable[Toxic]
    ) -> None:
        self._number = number
        self._sockets = client, server
        self._pipes = {"upstream": Pipe(client, server), "downstream": Pipe(server, client)}
        for toxic in toxics:
            self.meet(toxic)

    def meet(self, toxic: Toxic) -> None:
        """Put a toxic into its direction."""
        self._pipes[toxic.stream].meet(Meeting(toxic, self._number))

    def lift(self, toxic: Toxic, *, removed: bool) -> None:
        """Take note that a toxic was removed or changed."""
        self._pipes[toxic.stream].lift(toxic, removed=removed)

    async def run(self) -> None:
        """Carry data both ways until both have ended."""
        client, server = self._sockets
        with client, server:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run, "upstream", "downstream")
                tasks.start_soon(self._run, "downstream", "upstream")

    async def _run(self, stream: str, opposite: str) -> None:
        if await self._pipes[stream].run():
            for end in self._sockets:
                if end.fileno() >= 0:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        # The target is the opposite's source, which must not be closed while it is read.
        await self._pipes[opposite].lose_source()
        self._pipes[stream].target.close()


def _patience(meeting: Meeting) -> float:
    return meeting.toxic.behaviour.patience
