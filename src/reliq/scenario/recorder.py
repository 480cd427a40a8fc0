"""Write down what happens while it happens, and let triggers wait for it."""

import time
from collections.abc import Callable, Iterable, Sequence

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
    def entries(self) -> Sequence[Entry]:
        """What was seen so far; it grows."""
        return self._entries

    def record(self, src: str, e: str, p: str = "", **fields: object) -> Entry:
        """Write one entry, stamped now, and wake those who wait."""
        entry = Entry(0, self._now(), src, p, e, fields)
        self.add([entry])
        return entry

    def add(self, entries: Iterable[Entry]) -> None:
        """Write entries that another witness stamped."""
        self._entries.extend(entries)
        self._more.set()
        self._more = anyio.Event()

    async def wait_for(self, nth: int, fits: Callable[[Entry], bool], since: int = 0) -> Entry:
        """Return the nth entry (from 1) that fits, also if it was seen already."""
        seen, found = since, 0
        while True:
            more = self._more
            for entry in self._entries[seen:]:
                found += fits(entry)
                if found == nth:
                    return entry
                seen += 1
            await more.wait()
