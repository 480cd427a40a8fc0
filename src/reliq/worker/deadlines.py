"""
Time limits of handlers: one look at all attempts every little while, instead of a timer for each.

A timer for every attempt is set and taken back for each job, and fires for one in a million.
"""

from dataclasses import dataclass
from typing import Final, Never

import anyio

from reliq.worker.hand import Cut, Hand, now_s

LOOK_MAX_S: Final = 0.25
SHARE: Final = 20
"""A handler is stopped at most this part of the shortest limit too late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Stops handlers beyond their time; `shortest_s` is the least time that any kind has."""

    hand: Hand
    shortest_s: float

    async def run(self) -> Never:
        """Look until cancelled."""
        every_s = min(LOOK_MAX_S, self.shortest_s / SHARE)
        while True:
            await anyio.sleep(every_s)
            now = now_s()
            for attempt in self.hand.attempts():
                if now >= attempt.time_up_s and attempt.ended_at_s is None:
                    attempt.stop(Cut.TIMED_OUT)
