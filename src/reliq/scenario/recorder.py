"""Write down what happens while it happens, and let triggers wait for it."""

import time
from collections.abc import Callable

import anyio

from reliq.scenario.history import Entry

Clock = Callable[[], int]


class Recorder:
    """One event loop writes, so the order of entries is the order in which we saw them."""

    def __init__(self, now: Clock = time.monotonic_ns) -> None:
        self._now = now
        self._entries: list[Entry] = []
        self._more = anyio.Event()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What was seen so far."""
        return tuple(self._entries)

    def record(self, src: str, e: str, p: str = "", **fields: object) -> Entry:
        """Write one entry, stamped now, and wake those who wait."""
        entry = Entry(len(self._entries), self._now(), src, p, e, fields)
        self._entries.append(entry)
        self._more.set()
        self._more = anyio.Event()
        return entry

    async def wait_for(self, nth: int, fits: Callable[[Entry], bool]) -> Entry:
        """Return the nth entry (from 1) that fits, also if it was seen already."""
        seen = found = 0
        while True:
            for entry in self._entries[seen:]:
                found += fits(entry)
                if found == nth:
                    return entry
            seen = len(self._entries)
            await self._more.wait()
