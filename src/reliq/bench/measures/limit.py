"""The raw limit of the server: pgbench on the same tables, one job a transaction."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from reliq.bench.arena import Arena
from reliq.bench.contestant import OURS, BenchFailed
from reliq.bench.sample import Sample
from reliq.servers.programs import embedded_programs, system_programs

CLIENTS: Final = (1, 16)
SECONDS: Final = 2
_SCRIPT: Final = """\
insert into reliq.jobs (kind, payload, key) values ('bench.noop', '{"order": 1234}', 'k');
"""


async def play(arena: Arena, number: int) -> AsyncIterator[Sample]:
    """Insert from 1 and 16 clients; skipped, and told, where there is no pgbench."""
    if (pgbench := _pgbench()) is None:
        arena.tell("limit: no pgbench on this machine; the raw loops of `drain` are the limit")
        return
    for clients in CLIENTS:
        arena.tell(f"limit: pgbench, {clients} clients")
        async with arena.ground.database(OURS) as dsn:
            with TemporaryDirectory() as folder:
                script = Path(folder) / "insert.sql"
                script.write_text(_SCRIPT)
                done = await anyio.run_process(
                    [str(pgbench), "-n", "-f", str(script), "-c", str(clients), "-T", str(SECONDS),
                     "-M", "prepared", dsn], check=False,
                )  # fmt: skip
        rate = [line for line in done.stdout.decode().splitlines() if line.startswith("tps")]
        if done.returncode or not rate:
            raise BenchFailed(
                f"pgbench ended with {done.returncode}: {done.stderr.decode()[-500:]}"
            )
        yield Sample(
            f"limit insert {clients}", "pgbench", number, {"jobs_per_s": float(rate[-1].split()[2])}
        )


def _pgbench() -> Path | None:
    """Find it on PATH or beside the server's programs."""
    if (found := shutil.which("pgbench")) is not None:
        return Path(found)
    for programs in (system_programs, embedded_programs):
        try:
            candidate = Path(programs()) / "pgbench"
        except Exception:  # noqa: BLE001, S112 - no such server on this machine
            continue
        if candidate.exists():
            return candidate
    return None
