"""
Two versions of reliq on one schema: expand and contract, under load.

What the old one leaves to others, the next of a group and the last of a family, a new one's beat does.

The old one is the code of the commit before the second migration, out of the repository's history,
with the packages that are installed now.
"""

import asyncio
import hashlib
import hmac
import io
import json
import signal
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from shutil import which

import anyio
import asyncpg
import httpx
import pytest

from reliq.domain.job import NewJob
from reliq.postgres.enqueue import enqueue, enqueue_many
from reliq.postgres.migrate import migrate, migrations, why_not_current
from reliq.postgres.pool import Database
from reliq.servers import PostgresServer
from reliq.servers.loopback import HOST, free_port
from tests.fixtures.postgres import ask
from tests.fixtures.processes import ROOT, Command, StartCommand

pytestmark = pytest.mark.anyio

SECOND_MIGRATION = "src/reliq/postgres/migrations/0002_groups.sql"
APP = "reliq.automations.drill:app"
SECRET = "drill-secret"
EFFECTS = (
    "create schema drill",
    "create table drill.effects (job_id bigint, key text, attempt int)",
)


def git(*words: str) -> bytes:
    """Ask the repository; nothing where there is none."""
    if which("git") is None:
        return b""
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False).stdout  # noqa: S607


@pytest.fixture(scope="session")
def old_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Take the package as it was with one migration, or skip where nobody knows it any more."""
    added = git("log", "--diff-filter=A", "--format=%H", "--", SECOND_MIGRATION).decode().split()
    archive = git("archive", f"{added[-1]}^", "src") if added else b""
    if not archive:
        pytest.skip("the code of before is in the repository's history, which this copy has not")
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    assert len(list(folder.glob("src/reliq/postgres/migrations/*.sql"))) == 1
    return folder / "src"


@pytest.fixture
def dsn(server: PostgresServer) -> Iterator[str]:
    """The address of a database without tables."""
    admin, name = server.dsn("postgres"), f"test_{token_hex(6)}"
    ask(admin, f"create database {name}")
    yield server.dsn(name)
    ask(admin, f"drop database {name} with (force)")


@dataclass
class Load:
    """Senders and programs that go on all the time, and what they were promised."""

    url: str
    connection: asyncpg.Connection
    jobs: set[int] = field(default_factory=set)
    """Of programs: their numbers."""
    events: set[str] = field(default_factory=set)
    """Of senders: the keys that were answered with 2xx."""
    is_over: bool = False

    async def send(self) -> None:
        """Deliver, each event until it is taken, as senders do."""
        async with httpx.AsyncClient(timeout=30) as client:
            while not self.is_over:
                key = token_hex(8)
                body = json.dumps({"id": key, "jobs": [{"kind": "drill.write"}]}).encode()
                proof = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
                headers = {"X-Signature": proof, "Content-Type": "application/json"}
                while not (await client.post(self.url, content=body, headers=headers)).is_success:
                    await anyio.sleep(0.02)
                self.events.add(key)

    async def ask(self) -> None:
        """Enqueue as any program does that speaks SQL, which repeats what failed."""
        call = "select job_id from reliq.enqueue('drill.write', '{}', $1)"
        while not self.is_over:
            with suppress(asyncpg.InternalServerError):  # 0002 drops the function that we are in
                self.jobs.add(await self.connection.fetchval(call, token_hex(8)))
            await anyio.sleep(0.01)


@asynccontextmanager
async def under_load(dsn: str, port: int) -> AsyncIterator[Load]:
    """Have three senders and a program at work for as long as the block runs."""
    connection = await asyncpg.connect(dsn)
    load = Load(f"http://{HOST}:{port}/hooks/drill", connection)
    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(load.send)
            tasks.start_soon(load.ask)
            yield load
            load.is_over = True
    finally:
        with anyio.CancelScope(shield=True):
            await connection.close(timeout=10)


async def until(pool: asyncpg.Pool, condition: str, *values: object) -> None:
    """Wait until a condition on the tables holds."""
    with anyio.fail_after(60):
        while not await pool.fetchval(f"select {condition}", *values):
            await anyio.sleep(0.02)


async def has_done(pool: asyncpg.Pool, worker: Command, more: int) -> None:
    """Wait until a worker has done so many jobs more."""
    done = "(select count(*) from reliq.jobs where state = 'succeeded' and worker like $1)"
    name = f"%-{worker.process.pid}-%"
    before = await pool.fetchval(f"select {done}", name)
    await until(pool, f"{done} >= $2", name, before + more)


EXPECTED = {
    "database.away", "settle.delayed", "leases.not_renewed", "lease.lost", "job.reaped",
    "jobs.handed_back", "delivery.not_stored", "kinds.unknown",
}  # fmt: skip
"""A migration holds tables for a moment, and a new kind waits for who knows it: both are seen to later."""


def complaints(command: Command) -> list[str]:
    """List the lines of a process that are worse than that, or no lines of its log at all."""
    told = [line for line in command.log.splitlines() if '"level": "info"' not in line]
    return [
        line
        for line in told
        if '"level": "warning"' not in line or json.loads(line)["event"] not in EXPECTED
    ]


async def test_an_old_worker_and_a_new_one_do_all_work_once(
    old_code: Path, dsn: str, start: StartCommand
):
    settings = {"app": APP, "lease": "5s", "secrets__drill": SECRET}
    old = {"code": old_code, **settings}
    port = free_port()
    assert await start("migrate", **old).exit_code() == 0
    for statement in EFFECTS:
        await asyncio.to_thread(ask, dsn, statement)
    receiver = start("serve", port=str(port), **old)
    old_worker = start("worker", concurrency="8", **old)
    await receiver.logged("receiver.started")

    async with Database(dsn=dsn).pool("reliq tests", 10) as pool, under_load(dsn, port) as load:
        await has_done(pool, old_worker, 50)

        applied: list[str] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(extend, applied, dsn)
        assert sorted(applied) == [each.name for each in migrations()[1:]]
        await has_done(pool, old_worker, 50)

        new_worker = start("worker", concurrency="8", **settings)
        await has_done(pool, new_worker, 20)
        made = await use_what_is_new(pool)
        await until(pool, "exists (select from reliq.jobs where key = $1)", f"family:{made}")
        await has_done(pool, old_worker, 20)
        refused = start("worker", **old)
        assert await refused.exit_code() == 1
        assert "deploy the newer version" in refused.log
    async with Database(dsn=dsn).pool("reliq tests", 2) as pool:
        await until(
            pool, "not exists (select from reliq.jobs where state in ('queued', 'running'))"
        )
        await all_is_done_once(pool, load)
    for command in (old_worker, new_worker, receiver):
        command.send(signal.SIGTERM)
        assert await command.exit_code() == 0
    assert complaints(old_worker) == []
    assert complaints(receiver) == []


async def extend(applied: list[str], dsn: str) -> None:
    applied.extend(await migrate(dsn))


async def use_what_is_new(pool: asyncpg.Pool) -> int:
    """Make jobs in groups, with limits and with children; answer the parent's number."""
    await pool.execute("select reliq.limit_queue('narrow', 1)")
    grouped = [NewJob(kind="drill.write", group_key=f"group-{n % 3}") for n in range(12)]
    narrow = [NewJob(kind="drill.write", queue="narrow") for _ in range(10)]
    async with pool.acquire() as connection:  # at once: who enqueues sees to the group, too
        await enqueue_many(connection, grouped + narrow)
    family = {"jobs": [{"kind": "drill.write", "copies": 20}], "then": {"kind": "drill.tick"}}
    return (await enqueue(pool, "drill.family", family)).job_id


async def all_is_done_once(pool: asyncpg.Pool, load: Load) -> None:
    """Every job has succeeded with one effect, every event has its job, groups kept their order."""
    states = await pool.fetch("select state, count(*) from reliq.jobs group by state")
    assert [row["state"] for row in states] == ["succeeded"]
    kept = {row["id"] for row in await pool.fetch("select id from reliq.jobs")}
    assert load.jobs <= kept
    events = await pool.fetch(
        "select dedup_key, (select count(*) from reliq.jobs j where j.event_id = e.id) as jobs"
        " from reliq.events e"
    )
    assert load.events <= {row["dedup_key"] for row in events}
    assert {row["jobs"] for row in events} == {1}
    assert await pool.fetch(
        "select id from reliq.jobs where kind in ('drill.write', 'drill.tick')"
        " and (select count(*) from drill.effects where job_id = id) <> 1"
    ) == []  # fmt: skip
    assert await pool.fetchval("select count(*) from reliq.jobs where key like 'family:%'") == 1
    grouped = await pool.fetch(
        "select group_key, claimed_at, finished_at from reliq.jobs where group_key is not null"
        " order by group_key, id"
    )
    for one, next_one in pairwise(grouped):
        if one["group_key"] == next_one["group_key"]:
            assert next_one["claimed_at"] >= one["finished_at"]
    assert len(grouped) == 12


async def test_what_only_grew_is_no_reason_to_refuse_it(dsn: str):
    await migrate(dsn)
    newer = "insert into reliq.migrations (number, name, checksum) values ($1, $2, 'x')"
    async with Database(dsn=dsn).pool("reliq tests", 1) as pool:
        await pool.execute(newer, 9001, "9001_more")
        assert await why_not_current(pool) is None
        assert await migrate(dsn) == []

        await pool.execute(newer, 9002, "9002_less_contract")
        assert await why_not_current(pool) == (
            "migration 9002_less_contract took away what this reliq works with: "
            "deploy the newer version"
        )
