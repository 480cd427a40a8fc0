"""Reports on a real Postgres, made by real workers and fetched from a real receiver."""

import csv
import io
import signal
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
import asyncpg
import httpx
import pytest

from reliq.automations import report as module
from reliq.automations import sheet
from reliq.automations.report import request
from reliq.domain.job import Claim, JobId, Kind
from reliq.domain.keep import Keep, Keeps
from reliq.domain.report import report_link
from reliq.errors import LeaseLost, PermanentError
from reliq.job import Job
from reliq.postgres import pruner, reports
from reliq.postgres.desk import Desk
from reliq.postgres.enqueue import enqueue_job
from reliq.postgres.pruner import Pruner
from reliq.postgres.queue import PostgresQueue
from reliq.postgres.reports import PostgresReports
from reliq.servers.loopback import HOST, free_port
from tests.fixtures.postgres import Clock
from tests.fixtures.processes import StartCommand
from tests.fixtures.report_app import LOCK, MADE
from tests.fixtures.store import LEASE

pytestmark = pytest.mark.anyio

SECRET = "correct horse"
APP = "tests.fixtures.report_app:app"
KINDS = tuple(MADE)
DAY = timedelta(days=1)
ERROR_OF_DEAD = "select last_error from reliq.jobs where id = $1 and state = 'dead'"

Fetch = Callable[..., Any]


@pytest.fixture
def work(start: StartCommand) -> Any:
    """Start a worker of the App with reports."""
    return partial(start, "worker", app=APP)


@pytest.fixture
async def fetch(start: StartCommand) -> AsyncIterator[Fetch]:
    """Start a receiver, and fetch from it through links."""
    port = free_port()
    command = start("serve", app=APP, port=str(port), report_secret=SECRET)
    await command.logged("receiver.started")
    async with httpx.AsyncClient(timeout=30) as http:

        async def get(number: int, tail: str = "", lasts: timedelta = DAY) -> httpx.Response:
            link = report_link(
                f"http://{HOST}:{port}",
                SECRET.encode(),
                number,
                datetime.now(UTC) + lasts,  # noqa: TID251
            )
            return await http.get(link.replace("?", f"{tail}?"))

        yield get


async def asked(pool: asyncpg.Pool, name: str, **params: Any) -> JobId:
    """Ask for a report; answer its number."""
    return (await enqueue_job(pool, request(name, params))).job_id


async def ended(pool: asyncpg.Pool, number: int, **is_so: Any) -> Any:
    """Wait until a report is ready or has failed, or is as it is said; answer how far it is then."""
    with anyio.fail_after(30):
        while True:
            found = await PostgresReports(pool).find(number)
            assert found
            if all(getattr(found, name) == value for name, value in is_so.items()) and (
                is_so or found.state != "running"
            ):
                return found
            await anyio.sleep(0.02)


def table(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


async def test_a_report_is_what_sql_says_whatever_its_chunks_and_parts(pool, work, fetch):
    work()
    number = await asked(pool, "numbers", rows=30_000, chunks=7, wide=100)

    found = await ended(pool, number)

    assert (found.state, found.done, found.total, found.rows) == ("ready", 7, 7, 30_000)
    answer = await fetch(number)
    assert answer.status_code == 200
    assert answer.headers["content-disposition"] == f'attachment; filename="numbers-{number}.csv"'
    head, *lines = table(answer.text)
    assert head == ["n", "text"]
    assert lines == [[str(n), f"row {n}{'x' * 100}"] for n in range(1, 30_001)]
    parts = await pool.fetch("select chunk, rows, length(content) as n from reliq.report_parts")
    assert len(parts) > 1 + 7
    assert max(part["n"] for part in parts) < sheet.PART_CHARACTERS + 200
    assert (await fetch(number, "/progress")).json() == {
        "state": "ready", "done": 7, "total": 7, "rows": 30_000,
    }  # fmt: skip
    result = await pool.fetchval("select result from reliq.jobs where kind = 'report.finish'")
    assert '"rows": 30000' in result


async def test_the_report_of_jobs_holds_those_that_ended_between_two_moments(
    pool, work, fetch, monkeypatch
):
    await pool.execute(
        "insert into reliq.jobs (kind, key, state, ready, attempt, claimed_at, finished_at)"
        " select 'k\"' || n % 3, 'k', (array['succeeded', 'dead', 'cancelled'])[1 + n % 3], false, 1,"
        " reliq.now(), reliq.now() - n * interval '1 minute' from generate_series(1, 500) n"
    )
    since, until = await pool.fetchrow(
        "select now() - interval '300 minutes', now() - interval '100 minutes'"
    )
    work()
    number = await asked(pool, "jobs", since=since.isoformat(), until=until.isoformat())

    found = await ended(pool, number)

    rows = await pool.fetch(
        "select id, kind, state, attempt, created_at, claimed_at, finished_at from reliq.jobs"
        " where finished_at >= $1 and finished_at < $2 order by id", since, until,
    )  # fmt: skip
    head, *lines = table((await fetch(number)).text)
    assert head == list(module.JOBS.columns)
    assert lines == [
        [v.isoformat() if isinstance(v, datetime) else str(v) for v in r] for r in rows
    ]
    assert found.rows == len(rows) == 200


async def test_the_report_of_jobs_is_cut_into_ranges_of_numbers(pool, monkeypatch):
    monkeypatch.setattr(module, "JOBS_OF_A_CHUNK", 10)
    monkeypatch.setattr(reports, "FETCH", 5)
    await pool.execute(
        "insert into reliq.jobs (kind, key, state, ready, finished_at)"
        " select 'k', 'k', 'succeeded', false, reliq.now() - interval '1 hour' from generate_series(1, 25)"
    )
    async with pool.acquire() as tx, tx.transaction():
        chunks = await module.JOBS.split(tx, {"until": "2100-01-01T00:00:00+00:00"})
        rows = [row["id"] for chunk in chunks async for row in module.JOBS.rows(tx, chunk)]
        now = await tx.fetchval("select reliq.now()")

    assert [(chunk["first"], chunk["last"]) for chunk in chunks] == [(1, 10), (11, 20), (21, 25)]
    assert rows == list(range(1, 26))
    [(since, until)] = {(chunk["since"], chunk["until"]) for chunk in chunks}
    assert now - timedelta(seconds=30) < datetime.fromisoformat(until) <= now
    assert datetime.fromisoformat(since) == datetime.fromisoformat(until) - DAY


@pytest.mark.parametrize("wrong", ["yesterday", "2026-11-30T00:00:00", 5])
async def test_a_moment_that_is_none_is_refused_in_words(pool, wrong):
    async with pool.acquire() as tx, tx.transaction():
        with pytest.raises(PermanentError, match="since is a moment with its offset"):
            await module.JOBS.split(tx, {"since": wrong})


@pytest.mark.parametrize("chunks", [0, 3])
async def test_a_report_without_rows_is_a_line_of_names(pool, work, fetch, chunks):
    work()
    number = await asked(pool, "numbers", chunks=chunks)

    found = await ended(pool, number)

    assert (found.state, found.done, found.total, found.rows) == ("ready", chunks, chunks, 0)
    assert (await fetch(number)).text == "n,text\r\n"


async def test_progress_tells_how_far_a_report_is_from_before_its_first_job_on(pool, work, fetch):
    number = await asked(pool, "numbers", rows=40, chunks=4, slow=2)
    assert (await fetch(number, "/progress")).json() == {
        "state": "running", "done": 0, "total": None, "rows": 0,
    }  # fmt: skip
    async with pool.acquire() as holder, holder.transaction():
        await holder.execute("select pg_advisory_xact_lock($1)", LOCK)
        work()
        await ended(pool, number, done=3)
        answer = await fetch(number, "/progress")
        early = await fetch(number)

    assert answer.json() == {"state": "running", "done": 3, "total": 4, "rows": 30}
    assert (early.status_code, early.headers["retry-after"]) == (409, "5")
    assert (await ended(pool, number)).state == "ready"
    assert (await fetch(number)).status_code == 200


async def test_who_has_no_good_link_gets_nothing(pool, work, fetch):
    work()
    number = await asked(pool, "numbers", rows=1)
    await ended(pool, number)

    late = await fetch(number, lasts=timedelta(seconds=-1))
    strange = await fetch(number + 1_000)
    none = await fetch(number, "x")

    assert late.status_code == 410
    assert strange.status_code == none.status_code == 404
    assert strange.json() == {"error": "not found"}


async def test_without_a_secret_there_is_nothing_to_fetch(pool, start):
    port = free_port()
    command = start("serve", app=APP, port=str(port))
    await pool.execute(
        "insert into reliq.reports (id, name, chunks, state, rows) values (1, 'a', 0, 'ready', 0)"
    )
    await command.logged("receiver.started")
    async with httpx.AsyncClient() as http:
        answer = await http.get(
            report_link(f"http://{HOST}:{port}", b"", 1, datetime.now(UTC) + DAY)  # noqa: TID251
        )

    assert answer.status_code == 404


async def test_a_dead_chunk_holds_the_report_until_it_is_made_anew(pool, work, fetch):
    work()
    number = await asked(pool, "numbers", rows=20, chunks=2, bad=1)

    await ended(pool, number, dead=1, done=1)
    assert (await fetch(number, "/progress")).json() == {
        "state": "running", "done": 1, "total": 2, "rows": 10, "dead": 1,
    }  # fmt: skip
    await pool.execute("create table mended ()")
    dead = await pool.fetchval("select id from reliq.jobs where state = 'dead'")
    await Desk(pool).requeue_job(JobId(dead), by="ann", reason="mended", even_ignored=False)

    assert (await ended(pool, number)).state == "ready"
    assert [row[0] for row in table((await fetch(number)).text)[1:]] == list(map(str, range(1, 21)))


async def test_a_report_that_goes_on_without_a_chunk_has_failed_and_says_why(pool, work, fetch):
    work()
    number = await asked(pool, "numbers-or-not", rows=20, chunks=2, bad=1)

    found = await ended(pool, number)

    reason = "1 of 2 chunks are missing: their jobs died or were cancelled"
    assert (found.state, found.reason, found.rows) == ("failed", reason, 10)
    answer = await fetch(number)
    assert (answer.status_code, answer.json()["reason"]) == (409, reason)


@pytest.mark.parametrize(
    ("name", "error"),
    [("nothing", "this App has no report 'nothing': it has bytes, elsewhere, jobs"),
     ("short", "a row has 1 cells, and the report 2 columns"),
     ("misnamed", "it lacks text, and has txt, more besides"),
     ("text", "a row is a sequence of cells, or a dict by the names of the columns, not str"),
     ("bytes", "not bytes"), ("set", "not set"), ("number", "not int"),
     ("uncut", "split of the report uncut gives no list of dicts")],
)  # fmt: skip
async def test_a_report_that_cannot_be_made_says_why(pool, work, name, error):
    work()
    number = await asked(pool, name)
    with anyio.fail_after(30):
        while (told := await pool.fetchval("select max(last_error) from reliq.jobs")) is None:
            await anyio.sleep(0.02)

    assert error in told
    found = await PostgresReports(pool).find(number)
    is_dead = name in {"nothing", "uncut"}
    said = f"its first job is dead: see `reliq show {number}`"
    expected = ("failed", said) if is_dead else ("running", None)
    assert (found.state, found.reason) == expected


async def test_rows_of_names_are_taken_by_the_names_of_the_columns(pool, work, fetch):
    work()
    number = await asked(pool, "named")

    await ended(pool, number)
    assert (await fetch(number)).text == "n,text\r\n1,one\r\n"


async def test_a_report_may_be_put_elsewhere(pool, work, fetch, tmp_path, monkeypatch):
    monkeypatch.setenv("RELIQ_TEST_FOLDER", str(tmp_path))
    work()
    number = await asked(pool, "elsewhere", rows=20_000, chunks=2, wide=50)

    found = await ended(pool, number)

    assert (found.state, found.done, found.rows) == ("ready", 2, 20_000)
    answer = await fetch(number)
    assert (answer.status_code, answer.headers["location"]) == (
        303, f"https://files.test/{number}",
    )  # fmt: skip
    lines = table((tmp_path / str(number)).read_bytes().decode())
    assert [line[0] for line in lines[1:]] == list(map(str, range(1, 20_001)))
    assert await pool.fetchval("select count(*) from reliq.report_parts") == 0


async def begun(queue: PostgresQueue, **params: Any) -> None:
    """Let a report be split by its first job."""
    await asked(queue.pool, "numbers", **params)
    [claim] = await queue.claim_jobs(1)
    await MADE["report.request"].run(job_of(queue, claim, MADE["report.request"].model))


def job_of(queue: PostgresQueue, claim: Claim, model: Any = None) -> Job:
    return Job.of(claim, partial(queue.transaction, claim), None, model, queue.fan_out)  # type: ignore[arg-type]


@pytest.mark.parametrize("has_written", [False, True])
async def test_a_chunk_that_runs_twice_is_written_once(
    pool, open_queue, clock: Clock, monkeypatch, has_written
):
    """The first to run lost its lease, before or after it had written into its transaction."""
    one, other = (open_queue(name, kinds=KINDS) for name in ("w1", "w2"))
    await begun(one, rows=10)
    [first] = await one.claim_jobs(1)
    is_there, go_on = anyio.Event(), anyio.Event()
    written = sheet.write_part

    async def slow(tx: Any, report_id: int, part: Any) -> bool:
        if has_written:
            await written(tx, report_id, part)
        is_there.set()
        await go_on.wait()
        return has_written or await written(tx, report_id, part)

    endings: list[BaseException] = []

    async def run_first() -> None:
        try:
            await MADE["report.chunk"].run(job_of(one, first))
        except (LeaseLost, asyncpg.UniqueViolationError) as error:
            endings.append(error)

    async with anyio.create_task_group() as tasks:
        monkeypatch.setattr(sheet, "write_part", slow)
        tasks.start_soon(run_first)
        await is_there.wait()
        monkeypatch.setattr(sheet, "write_part", written)
        await clock.forward(LEASE.total_seconds() + 1)
        await other.reap_jobs()
        [second] = await other.claim_jobs(1)
        tasks.start_soon(MADE["report.chunk"].run, job_of(other, second))
        if not has_written:
            await ended(pool, 1, done=1)
        go_on.set()

    assert [type(each) for each in endings] == [
        LeaseLost if has_written else asyncpg.UniqueViolationError
    ]
    found = await PostgresReports(pool).find(1)
    assert (found.done, found.rows) == (1, 10)


async def test_a_report_is_made_once_although_its_first_job_runs_twice(pool, open_queue, clock):
    one, other = (open_queue(name, kinds=KINDS) for name in ("w1", "w2"))
    await asked(pool, "numbers", rows=10, chunks=2)
    [first] = await one.claim_jobs(1)
    await clock.forward(LEASE.total_seconds() + 1)
    await other.reap_jobs()
    [second] = await other.claim_jobs(1)
    model = MADE["report.request"].model
    await MADE["report.request"].run(job_of(other, second, model))

    with pytest.raises((LeaseLost, asyncpg.UniqueViolationError)):
        await MADE["report.request"].run(job_of(one, first, model))

    assert await pool.fetchval("select count(*) from reliq.reports") == 1
    assert await pool.fetchval("select count(*) from reliq.jobs where kind = 'report.chunk'") == 2


async def test_a_worker_that_is_killed_in_a_chunk_leaves_nothing_of_it(pool, work, fetch):
    number = await asked(pool, "numbers", rows=30, chunks=3, slow=2)
    async with pool.acquire() as holder, holder.transaction():
        await holder.execute("select pg_advisory_xact_lock($1)", LOCK)
        victim = work()
        await ended(pool, number, done=2)
        victim.send(signal.SIGKILL)
        await victim.exit_code()
    work()

    assert (await ended(pool, number)).state == "ready"
    assert [row[0] for row in table((await fetch(number)).text)[1:]] == list(map(str, range(1, 31)))


async def test_old_reports_go_in_batches_and_what_is_not_ended_stays(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pruner, "PARTS_BATCH", 2)
    await pool.execute(
        "insert into reliq.reports (id, name, chunks, state, created_at, finished_at)"
        " values (1, 'a', 5, 'ready', reliq.now() - interval '40 d', reliq.now() - interval '31 d'),"
        " (2, 'a', 5, 'ready', reliq.now() - interval '40 d', reliq.now() - interval '29 d'),"
        " (3, 'a', 5, 'running', reliq.now() - interval '400 d', null),"
        " (4, 'a', 5, 'failed', reliq.now() - interval '40 d', reliq.now() - interval '31 d'),"
        " (5, 'a', 5, 'failed', reliq.now() - interval '40 d', reliq.now() - interval '29 d')"
    )
    await pool.execute(
        "insert into reliq.report_parts (report_id, chunk, part, rows, content)"
        " select r, n, 1, 1, 'x' from generate_series(1, 3) r, generate_series(1, 5) n"
    )
    keeps = Keeps(usual=Keep(succeeded=30 * DAY, cancelled=DAY, dead=DAY, ignored=DAY), bodies=DAY,
                  effects=DAY, kinds={})  # fmt: skip

    assert (await Pruner(pool, keeps).prune())["reports"] == 2

    left = "select array_agg(distinct {}) from reliq.{}"
    assert await pool.fetchval(left.format("id", "reports")) == [2, 3, 5]
    assert await pool.fetchval(left.format("report_id", "report_parts")) == [2, 3]


@pytest.mark.parametrize(
    ("chunk", "final", "state"),
    [
        (101, 101, "failed"),
        (99, 101, "running"),  # made anew late, and dead again
        (None, 101, "running"),
        (101, 99, "running"),
        (101, None, "running"),  # a dead chunk holds it, or nobody has looked yet
    ],
)
async def test_a_report_that_nobody_can_end_any_more_has_failed_and_goes_in_its_time(
    pool: asyncpg.Pool, clock: Clock, chunk: int | None, final: int | None, state: str
):
    ago = "reliq.now() - $1::int * interval '1 day'"
    await pool.execute(
        "insert into reliq.reports (id, name, chunks, created_at)"
        " values (7, 'a', 1, reliq.now() - interval '400 days')"
    )
    await pool.execute("insert into reliq.report_parts values (7, 1, 1, 1, 'x')")
    await pool.execute(
        "insert into reliq.jobs (kind, key, parent_id, state, ready, finished_at) select 'report.chunk',"
        f" 'k', 7, case when $1::int is null then 'queued' else 'dead' end, $1::int is null, {ago}",
        chunk,
    )
    await pool.execute(
        "insert into reliq.parents (job_id, children, on_failure, finished_at, then_kind, then_payload,"
        f" then_run_in, then_queue, then_priority) select 7, 1, 'hold', {ago}, 'report.finish', '{{}}',"
        " '0', 'reports', 5",
        final,
    )
    keeps = Keeps(usual=Keep(succeeded=300 * DAY, cancelled=DAY, dead=90 * DAY, ignored=DAY), bodies=DAY,
                  effects=DAY, kinds={"report.chunk": Keep(dead=100 * DAY)})  # fmt: skip

    await Pruner(pool, keeps).prune()

    found = await PostgresReports(pool).find(7)
    assert found.state == state
    if state == "failed":
        assert found.reason == "its jobs died or were cancelled, and nobody made them anew"
        await clock.forward(301 * DAY.total_seconds())
        await Pruner(pool, keeps).prune()
        assert await PostgresReports(pool).find(7) is None
        assert await pool.fetchval("select count(*) from reliq.report_parts") == 0


async def test_a_chunk_that_comes_after_the_end_of_its_report_writes_nothing_and_says_so(
    pool, work, fetch
):
    work()
    number = await asked(pool, "numbers-or-not", rows=20, chunks=2, bad=1)
    await ended(pool, number)
    await pool.execute("create table mended ()")
    [dead] = await pool.fetch("select id from reliq.jobs where state = 'dead'")

    made, _ = await Desk(pool).requeue_job(
        JobId(dead["id"]), by="ann", reason="mended", even_ignored=False
    )

    with anyio.fail_after(20):
        while not (error := await pool.fetchval(ERROR_OF_DEAD, made)):
            await anyio.sleep(0.05)
    assert (
        error
        == f"PermanentError: report {number} has come to its end without this chunk: ask for it anew"
    )
    assert (await fetch(number, "/progress")).json()["rows"] == 10


def test_the_kinds_are_those_that_the_page_names():
    assert {Kind(kind) for kind in MADE} == {"report.request", "report.chunk", "report.finish"}
