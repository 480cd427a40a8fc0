"""
What each toxic does to one direction of one connection.

Attributes have Toxiproxy's names, units and defaults. A toxic acts on each piece of data and on
the end of data; it sends on through `send`, and knows its connection only as a `Flow`.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import ClassVar, Final, Protocol

from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of data, and the moment in the loop's time at which it is due."""

    data: bytes
    at: float


Send = Callable[[Chunk], Awaitable[None]]


class Cut(Exception):
    """The connection ends here: politely, or with a reset."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__()
        self.reset = reset


class Flow(Protocol):
    """One toxic at one direction of one connection; `passed` is how many bytes it let through."""

    dice: Random
    passed: int

    async def pause(self, seconds: float) -> bool:
        """Wait; return False at once when the toxic is removed or changed meanwhile."""

    def until(self, at: float) -> float:
        """Return how many seconds are left until a moment in the loop's time."""

    def hit(self) -> None:
        """Count one more piece of data that was not left as it was."""

    def hit_once(self) -> None:
        """Count the connection, whatever else happens to it."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a toxic does; this one lets everything pass."""

    room: ClassVar[int] = 1
    """How many chunks may wait in front, before the sender is made to wait."""
    closes_when_removed: ClassVar[bool] = False

    @property
    def patience(self) -> float:
        """How many seconds without data the connection survives."""
        return inf

    async def data(self, chunk: Chunk, flow: Flow, send: Send) -> None:  # noqa: ARG002
        """Do it to a piece of data, and send on what is left of it."""
        await send(chunk)

    async def end(self, flow: Flow) -> None:
        """Do it to the end of data, which is passed on when this returns."""


@dataclass(frozen=True, slots=True)
class Latency(Behaviour):
    """Data arrives `latency` ± `jitter` milliseconds later."""

    latency: int = 0
    jitter: int = 0

    room: ClassVar[int] = 1024

    @override
    async def data(self, chunk: Chunk, flow: Flow, send: Send) -> None:
        delay = (self.latency + flow.dice.uniform(-self.jitter, self.jitter)) / 1000
        if delay <= 0:
            await send(chunk)
            return
        flow.hit()
        due = Chunk(chunk.data, chunk.at + delay)
        await send(due if await flow.pause(flow.until(due.at)) else chunk)


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
    async def data(self, chunk: Chunk, flow: Flow, send: Send) -> None:
        flow.hit_once()


@dataclass(frozen=True, slots=True)
class ResetPeer(Behaviour):
    """Both ends get a reset, `timeout` milliseconds after the first data or the end of data."""

    timeout: int = 0

    @override
    async def data(self, chunk: Chunk, flow: Flow, send: Send) -> None:
        await self.end(flow)
        await send(chunk)

    @override
    async def end(self, flow: Flow) -> None:
        if await flow.pause(self.timeout / 1000):
            flow.hit_once()
            raise Cut(reset=True)


@dataclass(frozen=True, slots=True)
class LimitData(Behaviour):
    """The connection ends after so many `bytes`."""

    bytes: int = 0

    @override
    async def data(self, chunk: Chunk, flow: Flow, send: Send) -> None:
        head = chunk.data[: max(0, self.bytes - flow.passed)]
        flow.passed += len(head)
        if head:
            await send(Chunk(head, chunk.at))
        if flow.passed >= self.bytes:
            flow.hit_once()
            raise Cut


@dataclass(frozen=True, slots=True)
class Bandwidth(Behaviour):
    """Data passes at `rate` KB/s, in steps of a tenth of a second; at 0 it does not pass."""

    rate: int = 0

    @override
    async def data(self, chunk: Chunk, flow: Flow, send: Send) -> None:
        flow.hit()
        rest, step = chunk.data, self.rate * 100
        while rest:
            seconds = min(len(rest), step) / (self.rate * 1000) if step > 0 else inf
            piece = rest[:step] if await flow.pause(seconds) else rest
            await send(Chunk(piece, chunk.at))
            rest = rest[len(piece) :]


@dataclass(frozen=True, slots=True)
class Slicer(Behaviour):
    """Data is cut into pieces of `average_size` ± `size_variation` bytes, `delay` µs apart."""

    average_size: int = 0
    size_variation: int = 0
    delay: int = 0

    @override
    async def data(self, chunk: Chunk, flow: Flow, send: Send) -> None:
        pieces = deque(self._sliced(chunk.data, flow.dice))
        if len(pieces) > 1:
            flow.hit()
        while pieces:
            await send(Chunk(pieces.popleft(), chunk.at))
            if not await flow.pause(self.delay / 1e6):
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
    async def end(self, flow: Flow) -> None:
        flow.hit_once()
        await flow.pause(self.delay / 1000)


BEHAVIOURS: Final[dict[str, type[Behaviour]]] = {
    "bandwidth": Bandwidth,
    "latency": Latency,
    "limit_data": LimitData,
    "reset_peer": ResetPeer,
    "slicer": Slicer,
    "slow_close": SlowClose,
    "timeout": Timeout,
}


@dataclass(slots=True, kw_only=True)
class Toxic:
    """A toxic at a proxy; `toxicity` is the share of connections that it acts on."""

    name: str
    type: str
    stream: str
    toxicity: float
    behaviour: Behaviour
    seed: int
    hits: int = field(default=0)
