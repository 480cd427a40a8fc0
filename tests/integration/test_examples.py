"""The programs of `examples/` are run: three jobs in one transaction, and a service that is down."""

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import util
from threading import Thread
from types import ModuleType
from typing import Any

import anyio
import asyncpg
import pytest
from typing_extensions import override

import reliq
from reliq.servers.loopback import HOST
from tests.fixtures.processes import ROOT, StartCommand

pytestmark = pytest.mark.anyio

NOW = timedelta(0)


class Services(ThreadingHTTPServer):
    """Answers 200, and 502 at the addresses that are down; remembers who was told what."""

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Answering)
        self.down: set[str] = set()
        self.told: list[tuple[str, str, Any]] = []

    def at(self, path: str) -> str:
        return f"http://{HOST}:{self.server_address[1]}{path}"


class _Answering(BaseHTTPRequestHandler):
    server: Services

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.told.append((self.path, self.headers["idempotency-key"], body))
        self.send_response(502 if self.path in self.server.down else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    @override
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    with Services() as server:
        for name in ("mail", "crm", "partner"):
            monkeypatch.setenv(f"{name.upper()}_URL", server.at(f"/{name}"))
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def example(name: str) -> ModuleType:
    spec = util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def states(pool: asyncpg.Pool) -> dict[str, str]:
    rows = await pool.fetch("select kind, state from reliq.jobs order by id")
    return {row["kind"]: row["state"] for row in rows}


async def becomes(pool: asyncpg.Pool, wanted: dict[str, str], error: str) -> None:
    """Wait until the jobs are in these states, and the one that is down has said so."""
    down = "select last_error from reliq.jobs where state = 'queued'"
    with anyio.fail_after(30):
        while await states(pool) != wanted or error not in (await pool.fetchval(down) or ""):
            await anyio.sleep(0.02)


async def test_a_crm_that_is_down_touches_neither_mail_nor_report(
    pool: asyncpg.Pool, start: StartCommand, services: Services
):
    services.down.add("/crm")
    module = example("registration")
    await pool.execute(module.MEMBERS)
    async with pool.acquire() as connection:
        number = await module.register(connection, "Ann", report_in=NOW)
    made = await pool.fetch(
        "select xmin::text, kind, queue, priority from reliq.jobs order by kind"
    )
    assert len({row["xmin"] for row in made}) == 1
    assert [tuple(row)[1:] for row in made] == [
        ("registration.crm", "crm", 5),
        ("registration.welcome", "urgent", 1),
        ("report.request", "reports", 7),
    ]

    start("worker", app="examples.registration:app")

    others = ("registration.welcome", "report.request", "report.chunk", "report.finish")
    wanted = {"registration.crm": "queued", **dict.fromkeys(others, "succeeded")}
    await becomes(pool, wanted, "the CRM answered 502")
    assert await pool.fetchrow("select state, rows from reliq.reports") == ("ready", 1)
    assert sorted(services.told) == [
        ("/crm", f"member:{number}", {"member": number}),
        ("/mail", f"member:{number}", {"member": number}),
    ]


async def test_a_partner_that_is_down_touches_neither_mail_nor_report(
    pool: asyncpg.Pool, start: StartCommand, services: Services
):
    services.down.add("/partner")
    module = example("purchase")
    await pool.execute(module.ORDERS)
    async with pool.acquire() as connection:
        numbers = [await module.buy(connection, cents, report_in=NOW) for cents in (5, 7)]
    kinds = await pool.fetch("select kind, queue, priority from reliq.jobs order by kind")
    assert [tuple(row) for row in kinds] == [
        *[("purchase.mail", "urgent", 1)] * 2, *[("purchase.partner", "default", 5)] * 2,
        ("report.request", "reports", 7),
    ]  # fmt: skip

    start("worker", app="examples.purchase:app")

    others = ("purchase.mail", "report.request", "report.chunk", "report.finish")
    wanted = {"purchase.partner": "queued", **dict.fromkeys(others, "succeeded")}
    await becomes(pool, wanted, "the partner answered 502")
    content = await pool.fetchval("select content from reliq.report_parts where chunk = 1")
    assert content.split(",", 1)[1] == "2,12\r\n"
    told = [key for path, key, _ in services.told if path == "/mail"]
    assert sorted(told) == [f"order:{number}" for number in numbers]


@pytest.mark.parametrize("name", ["purchase", "registration"])
@pytest.mark.parametrize("fails", ["after", "inside"])
async def test_an_order_or_a_member_is_there_with_its_jobs_or_not_at_all(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch, name: str, fails: str
):
    module, enqueue_many = example(name), reliq.enqueue_many
    await pool.execute(module.ORDERS if name == "purchase" else module.MEMBERS)
    act = module.buy if name == "purchase" else module.register

    async def enqueue_then_fail(*arguments: Any) -> None:
        await enqueue_many(*arguments)
        raise ZeroDivisionError

    if fails == "inside":
        monkeypatch.setattr(module, "enqueue_many", enqueue_then_fail)
    async with pool.acquire() as connection:
        with pytest.raises(ZeroDivisionError):
            async with connection.transaction() if fails == "after" else nullcontext():
                await act(connection, 7 if name == "purchase" else "Ann")
                raise ZeroDivisionError

    table = "orders" if name == "purchase" else "members"
    assert await pool.fetchval(f"select count(*) from {table}") == 0
    assert await states(pool) == {}


@pytest.mark.parametrize("name", ["purchase", "registration"])
async def test_an_example_without_a_database_says_in_one_line_what_to_set(name: str):
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    program = await anyio.run_process(command, env={}, check=False)

    [line] = program.stderr.decode().splitlines()
    assert program.returncode == 2
    assert line.startswith("RELIQ_DATABASE_URL is missing: ")


@pytest.mark.parametrize("name", ["purchase", "registration"])
async def test_an_example_is_a_program(pool: asyncpg.Pool, dsn: str, name: str):
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    program = await anyio.run_process(command, env={"RELIQ_DATABASE_URL": dsn}, check=False)

    assert (program.returncode, program.stderr) == (0, b"")
    assert program.stdout.endswith(b"1 is stored, and three jobs with it\n")
    assert len(await states(pool)) == 3
    waits = await pool.fetchval(
        "select run_at - created_at from reliq.jobs where kind = 'report.request'"
    )
    assert timedelta(minutes=5) <= waits <= timedelta(hours=26)
