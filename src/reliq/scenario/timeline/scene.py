"""What every lane needs to know of a run: its scale, its witnesses, and whose job an entry is."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from reliq.scenario.history import DB_SECOND, SECOND, Entry, History
from reliq.scenario.timeline.picture import WIDTH, Mark

_MS: Final = 1_000_000
_DB_MOMENTS: Final = ("run_at", "lease_until", "was", "at", "open_until")
_UNTOLD: Final = ("db", "xid", "command", "began")
_VALUE_MAX: Final = 90
_MARGIN: Final = 0.015
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: str) -> str:
    """Replace what no page may hold: control characters and halves of pairs."""
    return _NOT_IN_XML.sub("\ufffd", text)


def stem(process: str) -> str:
    """Return the name of a process without its incarnation: `worker-1` for `worker-1#2`."""
    return process.partition("#")[0]


@dataclass(frozen=True)
class Scene:
    """A history on a scale, with numbers for its witnesses, counted in the order of time."""

    history: History
    witnesses: Sequence[Entry]

    @cached_property
    def start(self) -> int:
        """The run's start: moments are told from here."""
        return self.history.entries[0].t if self.history.entries else 0

    @cached_property
    def numbers(self) -> Mapping[int, int]:
        """The number of each witness, by its place in the history."""
        return {entry.i: n for n, entry in enumerate(self.witnesses, 1)}

    @cached_property
    def span(self) -> tuple[int, int]:
        """The first and the last moment on the scale, with a little air around them."""
        moments = [entry.t for entry in self.history.entries]
        moments += [began for x in self.history.of("driver", "delivery") if (began := began_of(x))]
        first, last = min(moments, default=0), max(moments, default=0)
        air = max(int((last - first) * _MARGIN), _MS)
        return first - air, last + air

    def x(self, t: int) -> float:
        """Return where a moment lies, in units."""
        first, last = self.span
        return (t - first) / (last - first) * WIDTH

    def ms(self, t: int) -> str:
        """Return a moment in words: milliseconds since the run's start."""
        return f"{(t - self.start) / _MS:+.1f} ms"

    def tell(self, entry: Entry) -> str:
        """Return an entry with its fields, in one line."""
        words = [f"#{entry.i}", self.ms(entry.t), entry.src, entry.e, entry.p]
        for name, value in entry.a.items():
            if value in (None, "", []) or name in _UNTOLD or (name, value) == ("worker", entry.p):
                continue
            words.append(f"{name}={self._value(entry, name, value)}")
        return " ".join(word for word in words if word)

    def jobs(self, entry: Entry) -> tuple[int, ...]:
        """Return the jobs that an entry is about."""
        fields = entry.a
        named = {fields.get("job"), fields.get("new"), self._called.get(fields.get("call"))}
        if isinstance(several := fields.get("jobs"), list | tuple):
            named |= set(several)
        if entry.e in {"delivery", "event"} and fields.get("event") is not None:
            named |= set(self._made_of.get(str(fields["event"]), ()))
        return tuple(sorted(job for job in named if isinstance(job, int)))

    def point(self, entry: Entry, y: float, tone: str, shape: str = "tick", **more: Any) -> Mark:
        """Draw one entry as a tick, or as another shape that has no length."""
        return self._mark((entry,), x=self.x(entry.t), y=y, tone=tone, shape=shape, **more)

    def bar(
        self, ends: tuple[int, int], entries: Iterable[Entry | None], tone: str, **more: Any
    ) -> Mark:
        """Draw what lasted from one moment to another, and stands for these entries."""
        left, right = self.x(ends[0]), self.x(ends[1])
        seen = tuple(entry for entry in entries if entry)
        head = f"{more.pop('head', seen[0].e if seen else tone)}"
        lasted = f"{self.ms(ends[0])} to {self.ms(ends[1])}"
        return self._mark(
            seen, x=left, width=right - left, tone=tone, shape="bar", **more,
            head=f"{head}, {lasted}",
        )  # fmt: skip

    def expiry(self, grant: Entry) -> int:
        """
        Return the moment at which a lease ends, on our clock.

        What is granted is known by the database's clock; it is counted from the commit, so a
        clock that jumps moves nothing but its own leases.
        """
        if "db" not in grant.a or "lease_until" not in grant.a:
            return grant.t + int(self.history.terms.lease_s * SECOND)
        granted: int = grant.a["lease_until"] - grant.a["db"]
        return grant.t + granted * (SECOND // DB_SECOND)

    def _mark(self, entries: tuple[Entry, ...], **more: Any) -> Mark:
        return Mark(
            **more,
            kind=entries[0].e if entries else "",
            tells=tuple(self.tell(entry) for entry in entries),
            jobs=tuple(sorted({job for entry in entries for job in self.jobs(entry)})),
            entries=tuple(entry.i for entry in entries),
            numbers=tuple(self.numbers[x.i] for x in entries if x.i in self.numbers),
        )

    def _value(self, entry: Entry, name: str, value: object) -> str:
        now = entry.a.get("db")
        if name in _DB_MOMENTS and isinstance(value, int) and isinstance(now, int):
            return self.ms(entry.t + (value - now) * (SECOND // DB_SECOND)).replace(" ", "\u00a0")
        text = str(value)
        return text if len(text) <= _VALUE_MAX else text[:_VALUE_MAX] + "…"

    @cached_property
    def _made_of(self) -> Mapping[str, list[int]]:
        """The jobs made of each event."""
        found = defaultdict(list)
        for made in self.history.of("wal", "job"):
            found[str(made.a.get("event"))].append(made.a["job"])
        return found

    @cached_property
    def _called(self) -> Mapping[object, int]:
        """The job of each call."""
        return {x.a["call"]: x.a["job"] for x in self.history.of("upstream", "request")}


def began_of(entry: Entry) -> int | None:
    """Return when it was begun, if it says so."""
    began = entry.a.get("began")
    return began if isinstance(began, int) else None
