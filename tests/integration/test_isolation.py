"""Handlers in a process of their own: every ending, every death, and nothing left behind."""

import os
import signal

import pytest

from reliq.postgres.enqueue import enqueue
from reliq.servers.processes import processes
from tests.fixtures.processes import Seen, StartCommand, until

pytestmark = pytest.mark.anyio


def is_alive(pid: int) -> bool:
    """Tell whether a process is there, and no zombie that nobody has buried yet."""
    found = processes().get(pid)
    return found is not None and found.state != "Z"


async def began(seen: Seen) -> int:
    """Wait for a handler to begin, and return its process."""
    [note] = await seen.wait_for("began")
    pid: int = note["pid"]
    assert is_alive(pid)
    return pid


async def test_coroutines_and_plain_functions_both_run_elsewhere(
    pool, seen: Seen, start: StartCommand
):
    made = [
        await enqueue(pool, kind, {"seconds": 0}) for kind in ("isolated.slow", "isolated.plain")
    ]
    worker = start("worker")

    pids = {note["pid"] for note in await seen.wait_for("ended", 2)}
    await seen.at_rest()
    assert len(pids | {worker.process.pid}) == 3
    assert {(await seen.job(job.job_id))["state"] for job in made} == {"succeeded"}


ENDINGS = [
    ("give up", "gave_up", "not worth it\ufffd"),
    ("permanent", "permanent", "PermanentError: never \ufffd works"),
    ("exit", "attempts", "SystemExit: 3"),
    ("unspeakable", "attempts", "Unspeakable: "),
    ("a number", "attempts", "ValueError: Again takes a timedelta"),
    ("group", "permanent", "PermanentError: one of a group"),
    ("cancelled", "attempts", "CancelledError"),
    ("anything", "attempts", "ValueError: anything"),
]


async def test_however_a_handler_ends_its_ending_is_the_same_as_in_the_worker(
    pool, seen: Seen, start: StartCommand
):
    made = {say: await enqueue(pool, "isolated.outcome", {"say": say}) for say, _, _ in ENDINGS}
    worker = start("worker", retry_attempts="2", concurrency="2")

    await seen.at_rest()
    for say, reason, error in ENDINGS:
        job = await seen.job(made[say].job_id)
        assert (job["state"], job["dead_reason"]) == ("dead", reason)
        assert job["last_error"].startswith(error)
        assert job["attempt"] == (2 if reason == "attempts" else 1)
    statuses = await pool.fetch("select status from reliq.attempts where status is not null")
    assert [row["status"] for row in statuses] == [422]
    assert '"where": "worker_app.py:' in worker.log


async def test_again_is_heard(pool, seen: Seen, start: StartCommand):
    made = await enqueue(pool, "isolated.outcome", {"say": "again", "times": 2})
    start("worker")

    await seen.at_rest()
    assert await seen.endings(made.job_id) == ["again"] * 2


@pytest.mark.parametrize(
    ("kind", "died"),
    [
        ("isolated.deadly", "was killed by SIGKILL"),
        ("isolated.exiting", "ended with exit code 3 and no answer"),
        ("isolated.forking", "ended with exit code 4 and no answer"),
        ("isolated.alarming", "was killed by SIGALRM"),
    ],
)
async def test_a_handler_that_takes_its_process_down_fails_with_how_it_died(
    pool, seen: Seen, start: StartCommand, kind, died
):
    made = await enqueue(pool, kind)
    worker = start("worker", retry_attempts="1")

    await seen.at_rest()
    job = await seen.job(made.job_id)
    assert job["last_error"] == f"HandlerDied: the process of the handler {died}"
    assert (job["dead_reason"], await seen.endings(made.job_id)) == ("attempts", ["failed"])
    assert worker.process.poll() is None


async def test_a_fork_of_the_handler_does_not_answer_for_it(pool, seen: Seen, start: StartCommand):
    made = await enqueue(pool, "isolated.doubling")
    start("worker")

    await seen.at_rest()
    job = await seen.job(made.job_id)
    assert (job["state"], job["last_error"]) == ("dead", "PermanentError: never")


async def test_a_handler_that_keeps_the_interpreters_lock_is_killed_and_harms_no_other(
    pool, seen: Seen, start: StartCommand
):
    hung = await enqueue(pool, "isolated.hogging")
    other = await enqueue(pool, "slow", {"seconds": 3})
    start("worker", retry_attempts="1")  # a lease of one second
    [pid] = {note["pid"] for note in await seen.wait_for("began", 2)} - {
        note["pid"] for note in await seen.notes() if note["job_id"] == other.job_id
    }

    await seen.at_rest()
    job = await seen.job(hung.job_id)
    assert (job["last_error"], job["attempt"]) == ("stopped at its time limit of 8 s", 1)
    assert await seen.endings(hung.job_id) == ["timed_out"]
    assert not is_alive(pid)
    assert (await seen.job(other.job_id))["state"] == "succeeded"
    assert await seen.endings(other.job_id) == []


async def test_what_is_printed_goes_to_the_log_and_what_is_left_running_ends(
    pool, seen: Seen, start: StartCommand
):
    await enqueue(pool, "isolated.printing")
    worker = start("worker")

    await seen.at_rest()
    [note] = await seen.notes()
    assert "printed by the handler\n" in worker.log
    await until(lambda: not is_alive(int(note["what"].removeprefix("left "))))


@pytest.mark.parametrize("ask", ["once", "transaction"])
async def test_what_needs_the_lease_is_refused_aloud(pool, seen: Seen, start: StartCommand, ask):
    made = await enqueue(pool, "isolated.transacting", {"ask": ask})
    start("worker", retry_attempts="1")

    await seen.at_rest()
    error = (await seen.job(made.job_id))["last_error"]
    assert error.startswith(f"RuntimeError: an isolated handler has no job.{ask}()")


# The end of the worker --------------------------------------------------------------------------


async def test_a_handler_may_end_within_the_grace_though_the_signal_came_to_all(
    pool, seen: Seen, start: StartCommand
):
    worker = start("worker")
    made = await enqueue(pool, "isolated.slow", {"seconds": 1})
    pid = await began(seen)

    for one in (pid, worker.process.pid):  # as systemd does
        os.kill(one, signal.SIGTERM)

    assert await worker.exit_code() == 0
    assert (await seen.job(made.job_id))["state"] == "succeeded"
    assert not is_alive(pid)


async def test_what_does_not_end_within_the_grace_is_killed_and_handed_back(
    pool, seen: Seen, start: StartCommand
):
    worker = start("worker", grace="300ms")
    made = await enqueue(pool, "isolated.slow", {"seconds": 60})
    pid = await began(seen)

    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0
    assert await seen.endings(made.job_id) == ["handed_back"]
    assert not is_alive(pid)


@pytest.mark.parametrize("kind", ["isolated.slow", "isolated.hogging"])
async def test_nothing_is_left_of_a_worker_that_is_killed(
    pool, seen: Seen, start: StartCommand, kind
):
    worker = start("worker")
    await enqueue(pool, kind, {"seconds": 60})
    pid = await began(seen)

    worker.send(signal.SIGKILL)

    await until(lambda: not is_alive(pid), seconds=2 if kind == "isolated.slow" else 20)


async def test_a_lost_lease_kills_the_process(pool, seen: Seen, start: StartCommand):
    start("worker")
    made = await enqueue(pool, "isolated.slow", {"seconds": 60})
    pid = await began(seen)

    await pool.execute("update reliq.jobs set fence = fence + 1 where id = $1", made.job_id)

    await until(lambda: not is_alive(pid))
