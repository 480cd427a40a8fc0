"""Jobs as a person reads them: what moves, and what each one went through."""

from datetime import datetime

import anyio
from rich.console import Console

from reliq.domain.job import FINAL, JobId, State
from reliq.postgres.desk import Desk, Row

COLOURS = {
    "queued": "cyan", "running": "yellow", "succeeded": "green", "dead": "red",
    "failed": "magenta", "timed_out": "magenta", "lease_lost": "red", "handed_back": "cyan",
    "again": "cyan",
}  # fmt: skip


def coloured(word: str) -> str:
    """Mark up a state or an ending."""
    colour = COLOURS.get(word)
    return f"[{colour}]{word}[/{colour}]" if colour else word


async def follow(console: Console, desk: Desk, finish_s: float) -> bool:
    """Print every change of a job until all have come to rest; False if time ran out."""
    seen: dict[int, tuple[str, int]] = {}
    with anyio.move_on_after(finish_s):
        while True:
            jobs = await desk.list_jobs(limit=100)
            for job in jobs:
                if seen.get(job["id"]) != (now := (job["state"], job["attempt"])):
                    seen[job["id"]] = now
                    _print_move(console, job)
            if all(State(job["state"]) in FINAL for job in jobs):
                return True
            await anyio.sleep(0.05)
    return False


def _print_move(console: Console, job: Row) -> None:
    what = coloured(job["state"])
    if job["state"] == "queued" and job["attempt"]:
        what += f" for a retry: {job['last_error']}"
    elif job["state"] == "dead":
        what += f": {job['last_error']}"
    console.print(f"  job {job['id']:>2} {job['kind']:<17} attempt {job['attempt']}  {what}")


async def show_timelines(console: Console, desk: Desk) -> None:
    """Print every job with its attempts and the waits between them."""
    for job in await desk.list_jobs(limit=100):
        print_timeline(console, await desk.show_job(JobId(job["id"])))


def print_timeline(console: Console, job: Row) -> None:
    """Print one job as a line per attempt; `job` is what `Desk.show_job` answers."""
    console.print(f"  job {job['id']} [bold]{job['kind']}[/bold] {coloured(job['state'])}")
    before: datetime = job["created_at"]
    for attempt in job["attempts"]:
        waited = (attempt["started_at"] - before).total_seconds()
        ran = ""
        if attempt["ended_at"] is not None:
            ran = f"ran {(attempt['ended_at'] - attempt['started_at']).total_seconds():.3f} s, "
            before = attempt["ended_at"]
        error = f": {attempt['error']}" if attempt["error"] else ""
        console.print(
            f"    attempt {attempt['attempt']}  waited {waited:.3f} s, {ran}"
            f"{coloured(attempt['ended'])}{error}"
        )
