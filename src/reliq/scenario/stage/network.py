"""
Network faults: links that run through Toxiproxy, or through our own proxy with the same API.

The client library keeps its server's address in a class, so calls take turns, in worker threads.
It asks by the module `requests`, without a time-out and through the machine's HTTP proxy; in the
place of that module it is given a session that does neither.
"""

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from secrets import token_hex
from threading import Lock
from typing import Any, Final, Literal, TypeVar

import anyio
import httpx
import requests
import toxiproxy  # type: ignore[import-untyped]
from anyio.abc import Process
from toxiproxy.exceptions import (  # type: ignore[import-untyped]
    InvalidToxic,
    NotFound,
    ProxyExists,
)
from typing_extensions import override

from reliq.errors import HarnessError
from reliq.scenario.stage.client import open_client
from reliq.scenario.stage.witness import Counters, Fault, Log, Stream, Witness
from reliq.servers.loopback import HOST, free_port

Provider = Literal["auto", "toxiproxy", "builtin"]
T = TypeVar("T")

PROGRAM: Final = "toxiproxy-server"
DEADLINE_S: Final = 10.0
"""For each request to the server."""
START_S: Final = 30.0
"""For its start: ours imports a web server first, and the machine may be busy."""

_PAUSE_S: Final = 0.02
_TAIL_LINES: Final = 12
_TURN: Final = Lock()

# The client's exceptions have no common root, and it falls over answers it does not expect.
_REFUSALS: Final = (ProxyExists, NotFound, InvalidToxic, KeyError, ValueError, OSError)


class _Patient(requests.Session):
    """Waits so long and no longer, and goes straight to the server."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False

    @override
    def request(self, *words: Any, **options: Any) -> requests.Response:
        return super().request(*words, **{"timeout": DEADLINE_S, **options})


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs, and how it is known what its faults hit."""

    port: int
    witness: Witness

    async def call(self, what: str, do: Callable[[toxiproxy.Toxiproxy], T]) -> T:
        """
        Let the client do something.

        Raises:
            HarnessError: the server refused, or did not answer.

        """
        try:
            return await anyio.to_thread.run_sync(self._take_turn, do)
        except _REFUSALS as error:
            raise HarnessError(f"the network server did not {what}: {error!r}") from error

    def _take_turn(self, do: Callable[[toxiproxy.Toxiproxy], T]) -> T:
        with _TURN, _Patient() as session:
            toxiproxy.api.requests = session
            client = toxiproxy.Toxiproxy()
            client.update_api_consumer(HOST, self.port)
            return do(client)


@dataclass(slots=True, kw_only=True)
class Network:
    """
    The links of one run, by name, and the faults that are on.

    Several networks can use one server, one after the other or at the same time: a link's name in
    the server begins with the network's own. The faults of a link are numbered; the dice of each
    come from the seed, the link and the number. (Toxiproxy's own dice cannot be set.)
    """

    seed: int
    server: Server
    _run: str = field(default_factory=lambda: token_hex(4))
    _links: dict[str, toxiproxy.Proxy] = field(default_factory=dict)
    _numbers: Counter[str] = field(default_factory=Counter)
    _on: list[Fault] = field(default_factory=list)

    def another(self, seed: int) -> "Network":
        """Return a network at the same server, with links of its own."""
        return Network(seed=seed, server=self.server)

    async def link(self, name: str, upstream_host: str, upstream_port: int) -> int:
        """Lay a link; return the port on which it listens."""
        proxy, port = self._proxy(name), free_port()
        self._links[proxy] = await self.server.call(
            f"lay the link {name}",
            lambda client: client.create(
                name=proxy, listen=f"{HOST}:{port}", upstream=f"{upstream_host}:{upstream_port}"
            ),
        )
        return port

    async def add(
        self,
        link: str,
        toxic: str,
        attributes: Mapping[str, int],
        stream: Stream = "downstream",
        toxicity: float = 1.0,
    ) -> Fault:
        """Put a toxic on a link; it acts at once, on the connections that are there too."""
        self._numbers[link] += 1
        name = f"{toxic}-{self._numbers[link]}"
        dice = Random(f"{self.seed}/{link}/{name}")  # noqa: S311 - to be repeated, not guessed
        fault = Fault(proxy=self._proxy(link), toxic=name, stream=stream, toxicity=toxicity)
        await self.server.call(
            f"put {toxic} on {link}",
            lambda _: self._links[fault.proxy].add_toxic(
                type=toxic,
                name=name,
                stream=stream,
                toxicity=toxicity,
                attributes={**attributes, "seed": dice.getrandbits(32)},
            ),
        )
        self._on.append(fault)
        await self.server.witness.began(fault)
        return fault

    async def remove(self, fault: Fault) -> None:
        """Take a toxic away; one that is gone already is no error."""
        if fault in self._on:
            await self.server.witness.ended(fault)
            proxy = self._links[fault.proxy]
            await self.server.call("heal", lambda _: proxy.destroy_toxic(fault.toxic))
            self._on.remove(fault)

    async def down(self, link: str) -> None:
        """Cut all connections of a link and refuse new ones."""
        fault = Fault(proxy=self._proxy(link))
        if fault not in self._on:
            await self.server.witness.began(fault)
            proxy = self._links[fault.proxy]
            await self.server.call(f"take {link} down", lambda _: proxy.disable())
            self._on.append(fault)

    async def up(self, link: str) -> None:
        """Let connections in again, on the same port."""
        await self._enable(Fault(proxy=self._proxy(link)))

    async def hits(self, of: Fault | str) -> int:
        """
        Count what a fault really hit, as far as that can be shown; see `witness`.

        Of a link, by its name: the connections that it cut by going down.
        """
        fault = Fault(proxy=self._proxy(of)) if isinstance(of, str) else of
        return await self.server.witness.hits(fault)

    async def reset(self) -> None:
        """Heal everything; hits are still known."""
        for fault in list(self._on):
            await (self._enable(fault) if fault.toxic is None else self.remove(fault))

    async def clear(self) -> None:
        """Take all links away, with their faults and hits."""
        links = list(self._links.values())
        await self.server.call("take links away", lambda _: [link.destroy() for link in links])
        self._links.clear()
        self._on.clear()

    async def _enable(self, fault: Fault) -> None:
        if fault in self._on:
            proxy = self._links[fault.proxy]
            await self.server.call("heal", lambda _: proxy.enable())
            self._on.remove(fault)

    def _proxy(self, link: str) -> str:
        return f"{self._run}-{link}"


@asynccontextmanager
async def open_network(
    provider: Provider, seed: int, *, program: Path | None = None
) -> AsyncIterator[Network]:
    """
    Start a server for as long as the block runs, and yield a network in it.

    `auto` is Toxiproxy where `program` is given or on the PATH, else our own proxy.

    Raises:
        HarnessError: the server could not be started.

    """
    found = program or shutil.which(PROGRAM)
    if provider == "toxiproxy" and found is None:
        raise HarnessError(
            f"provider `toxiproxy` needs {PROGRAM} on the PATH (https://github.com/Shopify/toxiproxy"
            "/releases); provider `builtin` needs nothing"
        )
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="reliq-network-") as folder:
        log = Path(folder) / "log"
        if found is None or provider == "builtin":
            ours = ("-m", "reliq.scenario.proxy", f"--port={port}", "--until-eof")
            command, env = [sys.executable, *ours], None
            witness: Witness = Counters(f"http://{HOST}:{port}")
        else:
            command, env = [str(found), f"-host={HOST}", f"-port={port}"], {"LOG_LEVEL": "trace"}
            witness = Log(log)
        async with _running(command, env, log) as process:
            await _ready(process, port, log)
            yield Network(seed=seed, server=Server(port, witness))


@asynccontextmanager
async def _running(
    command: list[str], env: Mapping[str, str] | None, log: Path
) -> AsyncIterator[Process]:
    try:
        with log.open("ab") as out:
            process = await anyio.open_process(
                command,
                stdin=subprocess.PIPE,  # its end tells the server that we are gone
                stdout=out,
                stderr=out,
                env=env,
                start_new_session=True,
            )
    except OSError as error:
        raise HarnessError(f"{command[0]} could not be started: {error}") from error
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.wait()


async def _ready(process: Process, port: int, log: Path) -> None:
    with anyio.move_on_after(START_S):
        async with open_client() as client:
            while process.returncode is None:
                try:
                    if (await client.get(f"http://{HOST}:{port}/version")).is_success:
                        return
                except httpx.TransportError:
                    pass
                await anyio.sleep(_PAUSE_S)
    ending = f"ended with {process.returncode}" if process.returncode else "does not answer"
    raise HarnessError(f"the network server {ending}; its last words:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
