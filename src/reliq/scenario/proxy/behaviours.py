"""The seven ways to hurt a connection, with Toxiproxy's names, attributes, units and defaults."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from random import Random
from typing import ClassVar, Final

from typing_extensions import override

from reliq.scenario.proxy.toxic import Behaviour, Chunk, Cut, Meeting, Send


@dataclass(frozen=True, slots=True)
class Latency(Behaviour):
    """Data arrives `latency` ± `jitter` milliseconds later."""

    latency: int = 0
    jitter: int = 0

    room: ClassVar[int] = 1024

    @override
    async def data(self, chunk: Chunk, meeting: Meeting, send: Send) -> None:
        delay = (self.latency + meeting.dice.uniform(-self.jitter, self.jitter)) / 1000
        if delay <= 0:
            await send(chunk)
            return
        meeting.hit()
        due = Chunk(chunk.data, chunk.at + delay)
        await send(due if await meeting.pause(meeting.until(due.at)) else chunk)


@dataclass(frozen=True, slots=True)
class Timeout(Behaviour):
    """Data is dropped; after `timeout` milliseconds without any (0: never) the connection ends."""

    timeout: int = 0

    closes_when_removed: ClassVar[bool] = True

    @property
    @override
    def patience(self) -> float:
        return self.timeout / 1000 if self.timeout > 0 else inf

    @override
    async def data(self, chunk: Chunk, meeting: Meeting, send: Send) -> None:
        meeting.hit_once()


@dataclass(frozen=True, slots=True)
class ResetPeer(Behaviour):
    """Both ends get a reset, `timeout` milliseconds after the first data or the end of data."""

    timeout: int = 0

    @override
    async def data(self, chunk: Chunk, meeting: Meeting, send: Send) -> None:
        await self.end(meeting)
        await send(chunk)

    @override
    async def end(self, meeting: Meeting) -> None:
        if await meeting.pause(self.timeout / 1000):
            meeting.hit_once()
            raise Cut(reset=True)


@dataclass(frozen=True, slots=True)
class LimitData(Behaviour):
    """The connection ends after so many `bytes`."""

    bytes: int = 0

    @override
    async def data(self, chunk: Chunk, meeting: Meeting, send: Send) -> None:
        head = chunk.data[: max(0, self.bytes - meeting.passed)]
        meeting.passed += len(head)
        if head:
            await send(Chunk(head, chunk.at))
        if meeting.passed >= self.bytes:
            meeting.hit_once()
            raise Cut


@dataclass(frozen=True, slots=True)
class Bandwidth(Behaviour):
    """Data passes at `rate` KB/s, in steps of a tenth of a second; at 0 it does not pass."""

    rate: int = 0

    @override
    async def data(self, chunk: Chunk, meeting: Meeting, send: Send) -> None:
        meeting.hit()
        rest, step = chunk.data, self.rate * 100
        while rest:
            seconds = min(len(rest), step) / (self.rate * 1000) if step > 0 else inf
            piece = rest[:step] if await meeting.pause(seconds) else rest
            await send(Chunk(piece, chunk.at))
            rest = rest[len(piece) :]


@dataclass(frozen=True, slots=True)
class Slicer(Behaviour):
    """Data is cut into pieces of `average_size` ± `size_variation` bytes, `delay` µs apart."""

    average_size: int = 0
    size_variation: int = 0
    delay: int = 0

    @override
    async def data(self, chunk: Chunk, meeting: Meeting, send: Send) -> None:
        pieces = deque(self._sliced(chunk.data, meeting.dice))
        if len(pieces) > 1:
            meeting.hit()
        while pieces:
            await send(Chunk(pieces.popleft(), chunk.at))
            if not await meeting.pause(self.delay / 1e6):
                pieces = deque([b"".join(pieces)] if pieces else [])

    def _sliced(self, data: bytes, dice: Random) -> Iterator[bytes]:
        spread = abs(self.size_variation)
        while data:
            size = max(1, self.average_size + dice.randint(-spread, spread))
            yield data[:size]
            data = data[size:]


@dataclass(frozen=True, slots=True)
class SlowClose(Behaviour):
    """The end of data is passed on `delay` milliseconds later."""

    delay: int = 0

    @override
    async def end(self, meeting: Meeting) -> None:
        meeting.hit_once()
        await meeting.pause(self.delay / 1000)


BEHAVIOURS: Final[dict[str, type[Behaviour]]] = {
    "bandwidth": Bandwidth,
    "latency": Latency,
    "limit_data": LimitData,
    "reset_peer": ResetPeer,
    "slicer": Slicer,
    "slow_close": SlowClose,
    "timeout": Timeout,
}
