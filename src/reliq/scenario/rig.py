"""
What lasts for many runs: a Postgres with a template, and a parent that forks processes.

A run copies the template, which costs 30 ms instead of a migration, and forks its processes,
which costs 20 ms each instead of half a second of imports.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Literal

import anyio
import anyio.to_thread

from reliq import errors
from reliq.errors import HarnessError
from reliq.scenario.model import Scenario
from reliq.scenario.recorder import Recorder
from reliq.scenario.stage.database import connect, prepare_template
from reliq.scenario.stage.links import bent
from reliq.scenario.stage.processes import open_processes
from reliq.scenario.stage.spawning import Spawn, by_exec, by_fork
from reliq.servers import IMAGE_DEFAULT, PostgresServer, Provider, make_server

if TYPE_CHECKING:
    from reliq.scenario.stage.network import Network

INSTALLED: Final = Path(errors.__file__).parents[1]
"""The folder from which we were imported: the processes run the same package."""

PARAMETERS: Final = {
    "wal_level": "logical", "max_replication_slots": "40", "max_wal_senders": "0",
    "fsync": "off", "full_page_writes": "off", "max_connections": "300",
    "shared_buffers": "64MB", "autovacuum_naptime": "1h",
}  # fmt: skip
"""Crashes of the machine are not played here; `synchronous_commit` stays on."""

Proxy = Literal["auto", "toxiproxy", "builtin"]
"""Who bends the links: Toxiproxy, our own proxy, or Toxiproxy where it is at hand."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where databases come from: a server, and the migrated database that is copied."""

    server: PostgresServer
    template: str
    """What `create database … template` needs."""


@dataclass(slots=True, kw_only=True)
class Rig:
    """The ground that runs share, the code that they judge, and how its processes start."""

    provider: Provider
    image: str
    proxy: Proxy
    code: Path
    server: PostgresServer
    folder: Path
    fork: Spawn
    stack: AsyncExitStack
    _network: "Network | None" = None
    _template: str | None = None
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    def spawn(self, scenario: Scenario) -> Spawn:
        """Return how the processes of a scenario are started."""
        return self.fork if scenario.spawn == "fork" else by_exec(self.code)

    @asynccontextmanager
    async def ground(self, scenario: Scenario) -> AsyncIterator[Ground]:
        """Lend the shared ground, or make one for this run alone (`isolation: server`)."""
        if scenario.isolation == "database":
            async with self._lock:
                if self._template is None:
                    self._template = await self._prepared(self.server)
            yield Ground(self.server, self._template)
            return
        own = scenario.system.postgres.settings
        async with open_server(self.provider, self.image, own) as server:
            yield Ground(server, await self._prepared(server))

    @asynccontextmanager
    async def network(self, scenario: Scenario, seed: int) -> AsyncIterator["Network | None"]:
        """Lend a network to a run that bends a link; its server starts with the first of them."""
        if not bent(scenario):
            yield None
            return
        from reliq.scenario.stage.network import open_network  # noqa: PLC0415 - most runs need none

        async with self._lock:
            if self._network is None:
                self._network = await self.stack.enter_async_context(open_network(self.proxy, seed))
        network = self._network.another(seed)
        try:
            yield network
        finally:
            with anyio.CancelScope(shield=True):
                await network.clear()

    async def _prepared(self, server: PostgresServer) -> str:
        """Migrate a database by the shipped command, and put the witness into it."""
        name = f"template_{token_hex(4)}"
        admin = await connect(server.dsn("postgres"))
        try:
            await admin.execute(f"create database {name}")
            async with open_processes(
                Recorder(), folder=self.folder, spawn=self.fork, names={}
            ) as processes:
                env = {"RELIQ_DATABASE_URL": server.dsn(name), "RELIQ_LOG": "json"}
                code, said = await processes.run(f"migrate-{name}", "migrate", env=env)
            if code != 0:
                raise HarnessError(f"`reliq migrate` ended with {code}:\n{said}")
            await prepare_template(server.dsn(name))
            major = int(await admin.fetchval("show server_version_num")) // 10_000
        finally:
            admin.terminate()
        return name + (" strategy file_copy" if major >= 15 else "")  # noqa: PLR2004 - the first to know it


@asynccontextmanager
async def open_rig(
    provider: Provider,
    *,
    image: str = IMAGE_DEFAULT,
    proxy: Proxy = "auto",
    code: Path = INSTALLED,
    server: PostgresServer | None = None,
) -> AsyncIterator[Rig]:
    """
    Start what runs share, or use the server that is given.

    Raises:
        HarnessError: a part did not start (also inside an ExceptionGroup).
        ServerFailed: there is no Postgres.

    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="reliq-rig-")))
        fork = await stack.enter_async_context(by_fork(code))
        if server is None:
            server = await stack.enter_async_context(open_server(provider, image))
        yield Rig(
            provider=provider, image=image, proxy=proxy, code=code, server=server,
            folder=folder, fork=fork, stack=stack,
        )  # fmt: skip


@asynccontextmanager
async def open_server(
    provider: Provider, image: str, settings: Mapping[str, str] | None = None
) -> AsyncIterator[PostgresServer]:
    """Run a server that keeps a logical log, without holding up the event loop."""
    server = make_server(provider, image=image, parameters={**PARAMETERS, **(settings or {})})
    try:
        await anyio.to_thread.run_sync(server.start)
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.close)
