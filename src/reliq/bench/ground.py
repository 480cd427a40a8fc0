"""The Postgres that all stand on: production's settings, a fresh database for each sample."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Final

import anyio
import anyio.to_thread
import asyncpg

from reliq.bench.contestant import Contestant
from reliq.servers import make_server

PARAMETERS: Final = {
    "shared_buffers": "1GB", "max_wal_size": "4GB", "checkpoint_timeout": "15min",
    "autovacuum_naptime": "10s", "max_connections": "200",
}  # fmt: skip
"""fsync, synchronous_commit and full_page_writes stay on, as in production."""

_TICKS_PER_S: Final = 100
_FIELDS: Final = {"parent": 1, "user": 11, "system": 12, "children_user": 13, "children_system": 14}


@dataclass(slots=True)
class Ground:
    """A server; `dsn` with the name of a database to put in."""

    address: str
    version: str
    admin: asyncpg.Connection
    postmaster: int | None
    """Its process, if it runs on this machine under us: only then its CPU can be told."""
    _templates: dict[tuple[str, int], str] = field(default_factory=dict)

    def dsn(self, database: str) -> str:
        """Return the address of a database."""
        return f"{self.address.rpartition('/')[0]}/{database}"

    @asynccontextmanager
    async def database(self, of: Contestant, jobs: int = 0) -> AsyncIterator[str]:
        """Lend a database with the tables of a contestant and `jobs` due jobs, vacuumed."""
        template = await self._template(of, jobs)
        name = f"bench_{token_hex(4)}"
        await self.admin.execute(f"create database {name} template {template}")
        await self.admin.execute("checkpoint")
        try:
            yield self.dsn(name)
        finally:
            with anyio.CancelScope(shield=True):
                await self.admin.execute(f"drop database {name} with (force)")

    async def _template(self, of: Contestant, jobs: int) -> str:
        if (of.name, jobs) in self._templates:
            return self._templates[of.name, jobs]
        name = f"bench_template_{token_hex(4)}"
        await self.admin.execute(f"create database {name}")
        self._templates[of.name, jobs] = name
        await of.ask("setup", dsn=self.dsn(name))
        if jobs:
            await of.ask("fill", jobs, dsn=self.dsn(name))
        connection = await asyncpg.connect(self.dsn(name))
        await connection.execute("vacuum analyze")
        await connection.close()
        return name

    def cpu_s(self) -> float | None:
        """Return the processor seconds of all the server's processes so far."""
        if self.postmaster is None:
            return None
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                numbers = stat.read_text(errors="replace").rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            own = int(numbers[_FIELDS["user"]]) + int(numbers[_FIELDS["system"]])
            if int(stat.parent.name) == self.postmaster:
                ticks += own + sum(
                    int(numbers[_FIELDS[f"children_{x}"]]) for x in ("user", "system")
                )
            elif int(numbers[_FIELDS["parent"]]) == self.postmaster:
                ticks += own
        return ticks / _TICKS_PER_S

    async def close(self) -> None:
        """Leave no database behind."""
        for name in self._templates.values():
            await self.admin.execute(f"drop database {name} with (force)")
        await self.admin.close()


@asynccontextmanager
async def open_ground(dsn: str | None) -> AsyncIterator[Ground]:
    """Stand on the server at `dsn`, or on an embedded one with production's settings."""
    server = None if dsn else make_server("embedded", parameters=PARAMETERS)
    try:
        if server is not None:
            await anyio.to_thread.run_sync(server.start)
        address = dsn or (server.dsn("postgres") if server else "")
        admin = await asyncpg.connect(address)
        local = server is not None and sys.platform == "linux"
        pid = await admin.fetchval("select pg_backend_pid()") if local else None
        ground = Ground(
            address, (await admin.fetchval("show server_version")).split()[0], admin,
            _parent(pid) if pid else None,
        )  # fmt: skip
        try:
            yield ground
        finally:
            with anyio.CancelScope(shield=True):
                await ground.close()
    finally:
        if server is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(server.close)


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return int(stat.rpartition(")")[2].split()[_FIELDS["parent"]])
