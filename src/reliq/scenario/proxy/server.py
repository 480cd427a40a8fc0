"""The proxies of a server: each a listener, its toxics and its connections."""

import asyncio
import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup

from reliq.scenario.proxy.link import Link
from reliq.scenario.proxy.toxic import Behaviour, Toxic
from reliq.servers.loopback import HOST

DOWN: Final = "down"
"""Under this name a proxy counts the connections that it cut by being disabled."""


@dataclass(eq=False, slots=True, kw_only=True)
class Proxy:
    """Listens, connects whoever comes with `upstream`, and lets toxics at it."""

    name: str
    listen: str
    upstream: str
    tasks: TaskGroup
    toxics: list[Toxic] = field(default_factory=list)
    connections: int = 0
    _gone: Counter[str] = field(default_factory=Counter)
    _links: set[Link] = field(default_factory=set)
    _serving: anyio.CancelScope | None = None
    _ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def enabled(self) -> bool:
        """Tell whether it listens."""
        return self._serving is not None

    @property
    def hits(self) -> dict[str, int]:
        """Count by toxic, those that were removed too, and by DOWN."""
        return dict(self._gone + Counter({toxic.name: toxic.hits for toxic in self.toxics}))

    def start(self) -> None:
        """
        Listen; where port 0 was asked for, `listen` names the port from now on.

        Raises:
            OSError: somebody else listens there.

        """
        if self._serving is not None:
            return
        listener = socket.create_server(
            _address(self.listen), family=_family(self.listen), backlog=1024
        )
        listener.settimeout(0)
        host, port = listener.getsockname()[:2]
        self.listen = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._serving, self._ended = anyio.CancelScope(), anyio.Event()
        self.tasks.start_soon(self._serve, listener, self._serving, self._ended)

    async def stop(self) -> None:
        """Refuse who comes from now on, and cut who is there."""
        if self._serving is not None:
            self._gone[DOWN] += len(self._links)
            self._serving.cancel()
            self._serving = None
            await self._ended.wait()

    def add(self, toxic: Toxic) -> None:
        """Let a toxic at all connections, also at those that are there."""
        self.toxics.append(toxic)
        for link in self._links:
            link.meet(toxic)

    def change(self, toxic: Toxic, behaviour: Behaviour, toxicity: float) -> None:
        """Give a toxic other attributes; what it holds up is let go."""
        toxic.behaviour, toxic.toxicity = behaviour, toxicity
        for link in self._links:
            link.lift(toxic, removed=False)

    def remove(self, toxic: Toxic) -> None:
        """Take a toxic away; its hits stay known."""
        for link in self._links:
            link.lift(toxic, removed=True)
        self.toxics.remove(toxic)
        self._gone[toxic.name] += toxic.hits

    def heal(self) -> None:
        """Take all toxics away."""
        for toxic in list(self.toxics):
            self.remove(toxic)

    async def _serve(
        self, listener: socket.socket, serving: anyio.CancelScope, ended: anyio.Event
    ) -> None:
        loop = asyncio.get_running_loop()
        with listener, serving:
            async with anyio.create_task_group() as links:
                while True:
                    client, _ = await loop.sock_accept(listener)
                    self.connections += 1
                    links.start_soon(self._carry, client, self.connections)
        ended.set()

    async def _carry(self, client: socket.socket, number: int) -> None:
        with client, socket.socket(_family(self.upstream)) as server:
            try:
                for end in (client, server):
                    end.settimeout(0)
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                address = _address(self.upstream)
                await asyncio.get_running_loop().sock_connect(server, address)
            except (OSError, UnicodeError):
                return  # The client is told so by being closed.
            link = Link(number, client, server, self.toxics)
            self._links.add(link)
            try:
                await link.run()
            finally:
                self._links.discard(link)


def _address(text: str) -> tuple[str, int]:
    """Take HOST:PORT apart; without a host it is ours, never all of the machine's."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) >= 1 << 16:
        raise OSError(f"{text!r} is no address: HOST:PORT")
    return host.strip("[]") or HOST, int(port)


def _family(text: str) -> socket.AddressFamily:
    return socket.AF_INET6 if text.startswith("[") else socket.AF_INET
