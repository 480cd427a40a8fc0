"""The links that a scenario bends: which traffic goes through a proxy, and under which name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reliq.scenario.model import Scenario
from reliq.scenario.model.steps import Net
from reliq.servers.loopback import HOST

if TYPE_CHECKING:
    from reliq.scenario.stage.network import Network


@dataclass(slots=True, kw_only=True)
class Links:
    """Ports to use in place of the true ones; empty where no step bends the link."""

    network: "Network | None" = None
    wanted: frozenset[str] = frozenset()
    """The links that a step bends."""
    ingress: dict[int, int] = field(default_factory=dict)
    db: dict[str, int] = field(default_factory=dict)
    egress: int | None = None
    _names: dict[tuple[str, str], str] = field(default_factory=dict)

    async def lay(
        self,
        *,
        receivers: Mapping[str, int],
        processes: Sequence[str],
        postgres: int,
        upstream: int,
    ) -> None:
        """Put a proxy into every link that a step bends."""
        if "ingress" in self.wanted:
            for name, port in receivers.items():
                self.ingress[port] = await self._lay("ingress", name, port)
        if "db" in self.wanted:
            for name in processes:
                self.db[name] = await self._lay("db", name, postgres)
        if "egress" in self.wanted:
            self.egress = await self._lay("egress", "worker", upstream)

    def of(self, net: Net, to: str | None) -> list[str]:
        """Name the proxies that a step means: those of a process, of a role, or all of the link."""
        return [
            proxy
            for (link, process), proxy in self._names.items()
            if link == net.link and (to is None or to in {process, process.partition("-")[0]})
        ]

    async def _lay(self, link: str, process: str, port: int) -> int:
        assert self.network is not None  # noqa: S101 - wanted links have a network
        name = f"{link}-{process}"
        self._names[link, process] = name
        return await self.network.link(name, HOST, port)


def bent(scenario: Scenario) -> frozenset[str]:
    """Name the links that a scenario bends."""
    return frozenset(step.do.net.link for step in scenario.steps if step.do.net is not None)
