"""
How often a fault really hit: what can be shown, and nothing beyond it.

Our own proxy counts for itself: connections cut, chunks delayed. Toxiproxy counts nothing, but
its log tells which connections came and went. There a toxic has hit the connections that came
while it was on, if it acts on all of them; those that were there before may have been idle, and
of a toxicity below 1 nobody knows whom it chose: neither is claimed. A link that went down has
hit the connections that were open. Whom it refused, neither of the two can see.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from reliq.scenario.stage.client import open_client

Stream = Literal["upstream", "downstream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is on at a proxy; without a toxic it is that the proxy is down."""

    proxy: str
    toxic: str | None = None
    stream: Stream = "downstream"
    toxicity: float = 1.0


class Witness(Protocol):
    """Told when a fault goes on and off, it can say how often the fault hit."""

    async def began(self, fault: Fault) -> None:
        """Take note just before the fault goes on."""

    async def ended(self, fault: Fault) -> None:
        """Take note just after the fault went off."""

    async def hits(self, fault: Fault) -> int:
        """Count; of a proxy that was down several times, all of them together."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Our own proxy's counters; it remembers them when a toxic is gone."""

    address: str

    async def began(self, fault: Fault) -> None:
        """Do nothing."""

    async def ended(self, fault: Fault) -> None:
        """Do nothing."""

    async def hits(self, fault: Fault) -> int:
        """Ask; the client library leaves out what the original does not answer."""
        async with open_client(self.address, timeout_s=20) as client:  # it may be swamped
            answer = await client.get(f"/proxies/{fault.proxy}")
        return int(answer.raise_for_status().json()["hits"].get(fault.toxic or "down", 0))


@dataclass(frozen=True, slots=True)
class Log:
    """Toxiproxy's log at level trace, a JSON object on each line."""

    path: Path
    _before: dict[Fault, int] = field(default_factory=dict)
    _hits: Counter[Fault] = field(default_factory=Counter)

    async def began(self, fault: Fault) -> None:
        """Count who is there (down), or who has come so far (a toxic)."""
        came, gone = self._count(fault)
        if fault.toxic is None:
            self._hits[fault] += came - gone
        else:
            self._before[fault] = came

    async def ended(self, fault: Fault) -> None:
        """Count who came meanwhile."""
        self._hits[fault] = await self.hits(fault)
        self._before.pop(fault, None)

    async def hits(self, fault: Fault) -> int:
        """Count what can be shown."""
        if fault not in self._before:
            return self._hits[fault]
        came, _ = self._count(fault)
        return came - self._before[fault] if fault.toxicity >= 1 else 0

    def _count(self, fault: Fault) -> tuple[int, int]:
        """Count the connections of a proxy that came, and those that have gone."""
        came = gone = 0
        for line in self._lines():
            if line.get("name") == fault.proxy:
                came += line["message"] == _CAME and line["direction"] == fault.stream
                gone += line["message"].startswith(_GONE) and line["link"].endswith(fault.stream)
        return came, gone

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in self.path.read_text(errors="replace").splitlines(keepends=True):
            # The last line may be half written; of what is not JSON nothing is to be learnt.
            if line.startswith("{") and line.endswith("}\n"):
                yield {"message": "", **json.loads(line)}


_CAME: Final = "Setup connection"
_GONE: Final = "RemoveConnection "
