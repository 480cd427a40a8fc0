"""`reliq worker` as a process: handlers, signals, crashes, outages, time limits, schedules."""

import json
import signal

import anyio
import httpx
import pytest

from reliq.postgres.enqueue import enqueue
from reliq.servers import open_server
from reliq.servers.loopback import free_port
from tests.fixtures.postgres import fetch_value
from tests.fixtures.processes import Seen, StartCommand
from tests.fixtures.worker_app import Paid

pytestmark = pytest.mark.anyio


# Handlers and endings ---------------------------------------------------------------------------


async def test_coroutines_and_plain_functions_both_run(pool, seen: Seen, start: StartCommand):
    await enqueue(pool, "quick")
    await enqueue(pool, "plain")
    start("worker")

    await seen.wait_for("ran")
    await seen.wait_for("ended")
    await seen.at_rest()


@pytest.mark.parametrize(
    ("say", "state", "reason", "error"),
    [
        ("give up", "dead", "gave_up", "not worth it\ufffd"),
        ("permanent", "dead", "permanent", "PermanentError: never \ufffd works"),
        ("exit", "dead", "attempts", "SystemExit: 3"),
        ("unspeakable", "dead", "attempts", "Unspeakable: "),
        ("a number", "dead", "attempts", "ValueError: Again takes a timedelta"),
        ("no status", "dead", "attempts", "TypeError: status is an HTTP status"),
        ("group", "dead", "permanent", "PermanentError: one of a group"),
        ("cancelled", "dead", "attempts", "CancelledError"),
        ("anything", "dead", "attempts", "ValueError: anything"),
    ],
)
async def test_however_a_handler_ends_its_ending_is_recorded(
    pool, seen: Seen, start: StartCommand, say, state, reason, error
):
    made = await enqueue(pool, "outcome", {"say": say})
    start("worker", retry_attempts="2")

    await seen.at_rest()
    job = await seen.job(made.job_id)
    assert (job["state"], job["dead_reason"]) == (state, reason)
    assert job["last_error"].startswith(error)
    assert job["attempt"] == (2 if reason == "attempts" else 1)


@pytest.mark.parametrize(
    ("kind", "payload", "kept"),
    [
        ("outcome", {"say": "result"}, '{"of": %d}'),
        ("outcome", {"say": "no json"}, '{"not_kept": "a result is JSON, and this dict is not"}'),
        ("quick", {}, None),
    ],
)
async def test_what_a_handler_answers_is_kept_and_never_costs_the_success(
    pool, seen: Seen, start: StartCommand, kind, payload, kept
):
    made = await enqueue(pool, kind, payload)
    start("worker")

    await seen.at_rest()
    job = await seen.job(made.job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert job["result"] == (kept.replace("%d", str(made.job_id)) if kept else None)


async def test_an_answer_that_is_no_outcome_costs_no_success_and_is_told_of_once_a_kind(
    pool, seen: Seen, start: StartCommand
):
    kinds = ["odd", "odd", "isolated.odd", "isolated.odd"]
    made = [await enqueue(pool, kind) for kind in kinds]
    worker = start("worker")

    await seen.at_rest()
    jobs = [await seen.job(one.job_id) for one in made]
    assert {(job["state"], job["attempt"], job["result"]) for job in jobs} == {
        ("succeeded", 1, None)
    }
    await worker.logged("attempt.no_outcome")
    lines = [json.loads(line) for line in worker.log.splitlines() if "no_outcome" in line]
    assert [(line["level"], line["returned"]) for line in lines] == [("warning", "dict")] * 2
    assert {line["kind"] for line in lines} == {"odd", "isolated.odd"}
    assert all("Done(" in line["hint"] for line in lines)


async def test_a_result_after_the_handlers_transaction_is_told_of_and_not_kept(
    pool, seen: Seen, start: StartCommand
):
    made = await enqueue(pool, "writing", {"then": "result"})
    worker = start("worker")

    await worker.logged("attempt.result_after_commit")
    job = await seen.job(made.job_id)
    assert (job["state"], job["result"]) == ("succeeded", None)


@pytest.mark.parametrize(
    ("tell", "kept"),
    [(7, '{"rows": 7}'), ("x" * 4_000, '{"not_kept": "a result has at most 4000')],
)
async def test_a_result_that_is_told_in_the_handlers_transaction_is_committed_with_it(
    pool, seen: Seen, start: StartCommand, tell, kept
):
    made = await enqueue(pool, "writing", {"tell": tell})
    start("worker")

    await seen.at_rest()
    job = await seen.job(made.job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert job["result"].startswith(kept)


async def test_a_result_cannot_be_told_where_nothing_would_commit_it(
    pool, seen: Seen, start: StartCommand
):
    made = await enqueue(pool, "writing", {"then": "tell"})
    worker = start("worker")

    await worker.logged("attempt.raised_after_commit")
    assert "set_result() is for job.transaction(): else return Done(result)" in worker.log
    job = await seen.job(made.job_id)
    assert (job["state"], job["result"]) == ("succeeded", None)


async def test_a_handler_gets_its_payload_in_its_model_and_none_that_does_not_fit(
    pool, seen: Seen, start: StartCommand
):
    good = await enqueue(pool, "typed", Paid(7))
    bad = await enqueue(pool, "typed", {"order": "hunter2", "card": 5})
    newer = await enqueue(pool, "typed", {"order": 7, "payload_version": 2})
    start("worker", retry_attempts="1")

    await seen.at_rest()
    assert (await seen.job(good.job_id))["result"] == "8"
    job = await seen.job(bad.job_id)
    assert (job["dead_reason"], job["attempt"]) == ("permanent", 1)
    assert job["last_error"] == (
        "PermanentError: the payload does not fit Paid: order is wrong (int_parsing), "
        "card is wrong (string_type)"
    )
    assert (await seen.job(newer.job_id))["dead_reason"] == "attempts"
    classes = "select job_id, error_class from reliq.attempts order by job_id"
    assert [tuple(row) for row in await pool.fetch(classes)] == [
        (bad.job_id, "PermanentError"), (newer.job_id, "TemporaryError"),
    ]  # fmt: skip


async def test_a_kind_has_the_pauses_and_the_attempts_of_its_own_table(
    pool, seen: Seen, start: StartCommand
):
    made = await enqueue(pool, "tabled", {"say": "no"})
    start("worker", retry_base="1h")

    await seen.at_rest()
    job = await seen.job(made.job_id)
    assert (job["dead_reason"], job["attempt"], job["attempts_max"]) == ("attempts", 2, 2)


async def test_again_spends_no_attempt(pool, seen: Seen, start: StartCommand):
    made = await enqueue(pool, "outcome", {"say": "again", "times": 5})
    start("worker", retry_attempts="2")

    await seen.at_rest()
    job = await seen.job(made.job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert await seen.endings(made.job_id) == ["again"] * 5


async def test_a_payload_that_python_cannot_read_is_dead_and_stops_nobody(
    pool, seen: Seen, start: StartCommand
):
    huge = '{"n": 1e5000}'  # Python reads no integer of more than 4,300 digits
    made = await pool.fetchval("select job_id from reliq.enqueue('quick', $1::jsonb)", huge)
    await enqueue(pool, "quick")
    start("worker")

    await seen.wait_for("ran")
    await seen.at_rest()
    job = await seen.job(made)
    assert (job["state"], job["dead_reason"]) == ("dead", "permanent")


async def test_a_job_settled_by_its_handlers_transaction_stays_settled(
    pool, seen: Seen, start: StartCommand
):
    made = await enqueue(pool, "writing", {"then": "raise"})
    worker = start("worker")

    await seen.at_rest()
    await worker.logged("attempt.raised_after_commit")
    assert "after the commit" in worker.log
    assert len(await seen.notes("wrote")) == 1
    assert (await seen.job(made.job_id))["state"] == "succeeded"


async def test_effects_wait_for_no_handler_that_holds_a_connection(
    pool, seen: Seen, start: StartCommand
):
    await enqueue(pool, "holding")
    start("worker", transactions="1")
    await seen.wait_for("holds")

    made = await enqueue(pool, "effecting")

    await seen.at_rest()
    assert (await seen.job(made.job_id))["state"] == "succeeded"


async def test_a_second_transaction_of_one_attempt_is_refused_aloud(
    pool, seen: Seen, start: StartCommand
):
    await enqueue(pool, "writing", {"then": "write again"})
    worker = start("worker")

    await worker.logged("attempt.raised_after_commit")
    assert "it can be used once an attempt" in worker.log
    assert await seen.notes("again") == []


async def test_a_failure_is_logged_with_its_line_and_without_its_secrets(
    pool, seen: Seen, start: StartCommand
):
    await enqueue(pool, "outcome", {"say": "password=hunter2"})
    worker = start("worker", retry_attempts="1")

    await worker.logged("job.buried")
    assert '"where": "worker_app.py:' in worker.log
    assert "hunter2" not in worker.log
    assert "hunter2" not in str(await pool.fetch("select * from reliq.attempts"))


async def test_what_the_app_calls_secret_is_in_no_table_and_no_line(
    pool, seen: Seen, start: StartCommand
):
    made = [await enqueue(pool, "leaky", {"iban": "hunter2", "settle": n}) for n in (False, True)]
    worker = start("worker", retry_attempts="1")

    await seen.at_rest()
    await worker.logged("attempt.raised_after_commit")
    job = await seen.job(made[0].job_id)
    assert job["last_error"] == "ValueError: no account ******** at the bank"
    assert await pool.fetchval("select array_agg(error) from reliq.attempts") == [job["last_error"]]
    assert "no account ******** at" in worker.log
    assert "hunter2" not in worker.log


@pytest.mark.parametrize("switch", ["on", "off"])
async def test_a_worker_prunes_by_itself_unless_told_not_to(
    pool, seen: Seen, start: StartCommand, switch
):
    made = await enqueue(pool, "quick")
    await pool.execute(
        "update reliq.jobs set state = 'succeeded', ready = false, finished_at = '2020-01-01'"
    )
    worker = start("worker", prune=switch, prune_every="10s")
    await enqueue(pool, "quick")

    await seen.wait_for("ran")
    if switch == "on":
        await worker.logged("rows.pruned")
    gone = await pool.fetchval("select count(*) = 0 from reliq.jobs where id = $1", made.job_id)
    assert gone == (switch == "on")


async def test_kinds_without_a_handler_are_named_once_and_stay(
    pool, seen: Seen, start: StartCommand
):
    made = await enqueue(pool, "mystery")
    worker = start("worker")
    await worker.logged("kinds.unknown")
    await enqueue(pool, "quick")
    await seen.wait_for("ran")

    assert worker.log.count("kinds.unknown") == 1
    assert (await seen.job(made.job_id))["attempt"] == 0


# Time limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hung", "hung.plain", "stubborn"])
async def test_a_handler_beyond_its_time_limit_is_an_attempt_that_timed_out(
    pool, seen: Seen, start: StartCommand, kind
):
    made = await enqueue(pool, kind, {"seconds": 1.5})
    start("worker", retry_attempts="1", lease="10s")

    await seen.at_rest()
    job = await seen.job(made.job_id)
    assert (job["state"], job["dead_reason"]) == ("dead", "attempts")
    assert await seen.endings(made.job_id) == ["timed_out"]


async def test_a_plain_function_keeps_its_place_until_its_thread_has_ended(
    pool, seen: Seen, start: StartCommand
):
    await enqueue(pool, "hung.plain", {"seconds": 2}, priority=0)
    await enqueue(pool, "quick")
    start("worker", "--concurrency", "1", retry_attempts="1")

    await seen.at_rest()
    assert [note["what"] for note in await seen.notes()] == ["began", "ended", "ran"]


# Leases -----------------------------------------------------------------------------------------


async def test_a_blocked_loop_costs_the_other_jobs_no_lease(pool, seen: Seen, start: StartCommand):
    """Two workers: the second would take over whatever the first loses."""
    start("worker")
    for _ in range(3):
        await enqueue(pool, "slow", {"seconds": 4})
    await seen.wait_for("began", 3)
    await enqueue(pool, "blocking", {"seconds": 3})
    start("worker")

    await seen.wait_for("ended", 4)
    await seen.at_rest()
    assert len(await seen.notes("began")) == 4
    assert await seen.notes("stopped") == []


async def test_a_killed_workers_job_is_taken_over_by_another(pool, seen: Seen, start: StartCommand):
    victim = start("worker")
    made = await enqueue(pool, "slow", {"seconds": 600})  # whenever the kill comes, it is not done
    await seen.wait_for("began")
    other = start("worker")
    await other.logged("worker.started")
    await pool.execute("update reliq.jobs set payload = $1", '{"seconds": 0}')

    victim.send(signal.SIGKILL)

    began = await seen.wait_for("began", 2)
    await seen.at_rest()
    job = await seen.job(made.job_id)
    assert [note["pid"] for note in began] == [victim.process.pid, other.process.pid]
    assert (job["state"], job["attempt"]) == ("succeeded", 2)
    assert await seen.endings(made.job_id) == ["lease_lost"]


async def test_a_frozen_worker_stops_its_handler_when_it_wakes_and_changes_nothing(
    pool, seen: Seen, start: StartCommand
):
    victim = start("worker")
    made = await enqueue(pool, "slow", {"seconds": 600})  # whenever it wakes, it is not done
    await seen.wait_for("began")
    victim.send(signal.SIGSTOP)
    await pool.execute("update reliq.jobs set payload = $1", '{"seconds": 0}')
    start("worker")
    await seen.wait_for("began", 2)

    victim.send(signal.SIGCONT)

    [stopped] = await seen.wait_for("stopped")
    await seen.at_rest()
    assert stopped["pid"] == victim.process.pid
    assert len(await seen.notes("ended")) == 1
    assert (await seen.job(made.job_id))["attempt"] == 2


async def test_a_suspect_runs_with_nothing_beside_it(pool, seen: Seen, start: StartCommand):
    suspect = await enqueue(pool, "slow", {"seconds": 0.5}, priority=0)
    await pool.execute("update reliq.jobs set lost_leases = 2")
    for _ in range(8):
        await enqueue(pool, "slow", {"seconds": 0.2})
    worker = start("worker")

    await seen.at_rest()
    assert "suspect.isolated" in worker.log
    notes = [(note["job_id"] == suspect.job_id, note["what"]) for note in await seen.notes()]
    alone = notes.index((True, "began"))
    assert notes[alone + 1] == (True, "ended")
    before = [what for _, what in notes[:alone]]
    assert before.count("began") == before.count("ended")


@pytest.mark.parametrize("deadly", [1, 3])
async def test_a_job_that_kills_its_worker_goes_down_alone(
    pool, seen: Seen, start: StartCommand, deadly
):
    """A supervisor starts the worker again each time, as in production."""
    poison = [await enqueue(pool, "deadly", priority=0) for _ in range(deadly)]
    innocent = [await enqueue(pool, "slow", {"seconds": 0.2}) for _ in range(6)]
    deaths = 0
    worker = start("worker")
    with anyio.fail_after(90):
        while await pool.fetchval(
            "select count(*) from reliq.jobs where state in ('queued', 'running')"
        ):
            if worker.process.poll() is not None:
                deaths += 1
                worker = start("worker")
            await anyio.sleep(0.05)

    assert {(await seen.job(job.job_id))["state"] for job in innocent} == {"succeeded"}
    ends = [await seen.job(job.job_id) for job in poison]
    assert {(end["state"], end["dead_reason"]) for end in ends} == {("dead", "poison")}
    assert deaths <= 2 + deadly


async def test_a_hung_thread_does_not_keep_a_suspect_from_running(
    pool, seen: Seen, start: StartCommand
):
    await enqueue(pool, "hung.plain", {"seconds": 60})
    start("worker", retry_attempts="1")
    await seen.wait_for("began")
    await seen.at_rest()
    suspect = await enqueue(pool, "quick")
    await pool.execute("update reliq.jobs set lost_leases = 2 where id = $1", suspect.job_id)

    await seen.wait_for("ran")


@pytest.mark.parametrize("kind", ["leaking", "interrupting"])
async def test_a_handler_that_breaks_its_own_task_breaks_no_other(
    pool, seen: Seen, start: StartCommand, kind
):
    made = await enqueue(pool, kind)
    worker = start("worker", retry_attempts="1")
    await enqueue(pool, "quick")

    await seen.wait_for("ran")
    await seen.at_rest()
    assert (await seen.job(made.job_id))["state"] in {"dead", "succeeded"}
    assert worker.process.poll() is None


# Signals ----------------------------------------------------------------------------------------


async def test_sigterm_claims_nothing_more_and_finishes_what_runs(
    pool, seen: Seen, start: StartCommand
):
    worker = start("worker")
    await enqueue(pool, "slow", {"seconds": 1})
    await seen.wait_for("began")

    worker.send(signal.SIGTERM)
    await worker.logged("worker.draining")
    late = await enqueue(pool, "quick")

    assert await worker.exit_code() == 0
    assert len(await seen.notes("ended")) == 1
    assert (await seen.job(late.job_id))["attempt"] == 0


async def test_what_does_not_finish_within_the_grace_is_handed_back_untried(
    pool, seen: Seen, start: StartCommand
):
    worker = start("worker", grace="300ms")
    made = [await enqueue(pool, kind, {"seconds": 30}) for kind in ("slow", "plain", "deaf")]
    await seen.wait_for("began", 3)

    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0
    for job in made:
        row = await seen.job(job.job_id)
        assert await seen.endings(job.job_id) == ["handed_back"], row["kind"]
        assert (row["state"], row["attempt"]) == ("queued", 0)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_hands_back_at_once(pool, seen: Seen, start: StartCommand, second):
    worker = start("worker", grace="5m")
    made = await enqueue(pool, "slow", {"seconds": 60})
    await seen.wait_for("began")

    worker.send(signal.SIGTERM)
    await worker.logged("worker.draining")
    worker.send(second)

    assert await worker.exit_code() == 0
    assert (await seen.job(made.job_id))["state"] == "queued"


# The database away ------------------------------------------------------------------------------


async def test_slow_work_leaves_places_for_the_rest(pool, seen: Seen, start: StartCommand):
    for _ in range(4):
        await enqueue(pool, "slow", {"seconds": 1}, queue="reports")
    worker = start("worker", "--queues", "default,reports:2", concurrency="4")
    await seen.wait_for("began", 2)
    await enqueue(pool, "quick")
    await seen.wait_for("ran")
    await seen.at_rest()

    running = most = 0
    for row in await seen.notes():
        running += {"began": 1, "ended": -1}.get(row["what"], 0)
        most = max(most, running)
    assert most == 2
    assert [row["what"] for row in await seen.notes()][:3] == ["began", "began", "ran"]
    worker.send(signal.SIGTERM)
    assert await worker.exit_code() == 0


@pytest.mark.parametrize("queues", ["default,reports:0", "reports:x", "reports,reports:2"])
async def test_queues_that_make_no_sense_stop_the_start(start: StartCommand, queues):
    worker = start("worker", "--queues", queues)

    assert await worker.exit_code() == 2
    assert f"RELIQ_QUEUES={queues} is wrong: " in worker.log


async def test_a_worker_outlives_an_outage_and_its_readiness_tells(
    start: StartCommand, template: str
):
    with open_server("embedded") as server:
        dsn, port = server.dsn(), free_port()
        assert await start("migrate", dsn=dsn).exit_code() == 0
        await fetch_value(dsn, "create table seen (job_id bigint, what text, pid int, "
                               "at timestamptz default clock_timestamp())")  # fmt: skip
        worker = start("worker", "--health-port", str(port), dsn=dsn)
        await worker.logged("worker.started")
        await ready(port, 200)

        await anyio.to_thread.run_sync(server.crash)
        await ready(port, 503)
        await anyio.to_thread.run_sync(server.start)
        await ready(port, 200)

        await fetch_value(dsn, "select reliq.enqueue('quick')")
        with anyio.fail_after(30):
            while not await fetch_value(dsn, "select count(*) from seen where what = 'ran'"):
                await anyio.sleep(0.05)
        worker.send(signal.SIGTERM)
        assert await worker.exit_code() == 0


async def ready(port: int, status: int) -> None:
    """Wait until a worker answers `/ready` so."""
    async with httpx.AsyncClient() as client:
        with anyio.fail_after(30):
            while True:
                try:
                    if (await client.get(f"http://127.0.0.1:{port}/ready")).status_code == status:
                        return
                except httpx.HTTPError:
                    pass
                await anyio.sleep(0.05)


async def test_a_worker_that_waits_for_its_database_is_alive_and_not_ready(start: StartCommand):
    port = free_port()
    nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"
    worker = start("worker", "--health-port", str(port), dsn=nowhere)

    await ready(port, 503)
    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0


@pytest.mark.parametrize("options", [(), ("--exit-on-db-error",)])
async def test_a_worker_gives_up_with_75_when_the_budget_is_spent(start: StartCommand, options):
    with open_server("embedded") as server:
        dsn = server.dsn()
        assert await start("migrate", dsn=dsn).exit_code() == 0
        budget = "5m" if options else "1s"
        worker = start("worker", *options, dsn=dsn, db_budget=budget)
        await worker.logged("worker.started")

        await anyio.to_thread.run_sync(server.crash)

        assert await worker.exit_code() == 75


async def test_a_worker_refuses_a_schema_that_it_does_not_know(pool, start: StartCommand):
    await pool.execute("insert into reliq.migrations values (9999, 'later_contract', 'x')")

    worker = start("worker")

    assert await worker.exit_code() == 1
    assert "deploy the newer version" in worker.log


# Schedules --------------------------------------------------------------------------------------


async def test_any_number_of_workers_makes_one_job_of_a_slot(pool, seen: Seen, start: StartCommand):
    workers = [start("worker") for _ in range(3)]
    for worker in workers:
        await worker.logged("worker.started")

    await seen.wait_for("ticked")
    await seen.at_rest()
    assert await pool.fetchval("select count(*) from reliq.jobs where kind = 'tick'") in {1, 2}
    assert await pool.fetchval(
        "select count(*) = count(distinct key) from reliq.jobs where kind = 'tick'"
    )
