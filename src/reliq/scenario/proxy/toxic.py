"""What a toxic is, and how it meets a connection."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from random import Random
from typing import ClassVar

import anyio


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of data, and the moment in the loop's time at which it came or is due."""

    data: bytes
    at: float


Send = Callable[[Chunk], Awaitable[None]]


class Cut(Exception):
    """The connection ends here: politely, or with a reset."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__()
        self.reset = reset


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a toxic does to data and to the end of data; this one lets everything pass."""

    room: ClassVar[int] = 1
    """How many chunks may wait in front, before the sender is made to wait."""
    closes_when_removed: ClassVar[bool] = False

    @property
    def patience(self) -> float:
        """How many seconds without data the connection survives."""
        return inf

    async def data(self, chunk: Chunk, meeting: "Meeting", send: Send) -> None:  # noqa: ARG002
        """Do it to a piece of data, and send on what is left of it."""
        await send(chunk)

    async def end(self, meeting: "Meeting") -> None:
        """Do it to the end of data, which is passed on when this returns."""


@dataclass(slots=True, kw_only=True)
class Toxic:
    """A behaviour at a proxy; `toxicity` is the share of connections that it acts on."""

    name: str
    type: str
    stream: str
    toxicity: float
    behaviour: Behaviour
    seed: int
    hits: int = 0


class Meeting:
    """A toxic at one direction of one connection; `passed` is how many bytes it let through."""

    def __init__(self, toxic: Toxic, connection: int) -> None:
        self.toxic = toxic
        self.passed = 0
        # A die for each connection: what it shows does not depend on who came first.
        self.dice = Random(f"{toxic.seed}/{connection}")  # noqa: S311 - to be repeated, not guessed
        self._roll = self.dice.random()
        self._counted = self._removed = False
        self._lifted = anyio.Event()

    @property
    def acts(self) -> bool:
        """Tell whether the dice chose this connection and the toxic is still there."""
        return not self._removed and self._roll < self.toxic.toxicity

    async def pause(self, seconds: float) -> bool:
        """Wait; return False at once when the toxic is removed or changed meanwhile."""
        with anyio.move_on_after(max(0, seconds)):
            await self._lifted.wait()
            return False
        return True

    def until(self, at: float) -> float:
        """Return how many seconds are left until a moment in the loop's time."""
        return at - anyio.current_time()

    def hit(self) -> None:
        """Count one more piece of data that was not left as it was."""
        self._counted = True
        self.toxic.hits += 1

    def hit_once(self) -> None:
        """Count the connection, whatever else happens to it."""
        if not self._counted:
            self.hit()

    def lift(self, *, removed: bool) -> None:
        """Let go of what is held up now; of what comes after it too, when `removed`."""
        self._removed = removed
        self._lifted.set()
        self._lifted = anyio.Event()
