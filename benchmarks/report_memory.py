"""
What a report of a million rows weighs: the memory of the worker that makes it, and of the receiver.

All rows are one chunk, the hardest case, and are downloaded whole. On any Linux, from the folder of
the project: `.venv/bin/python benchmarks/report_memory.py`.
"""

import sys
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import httpx

from reliq import App
from reliq.automations import report
from reliq.demo.stack import Place, running
from reliq.domain.report import report_link
from reliq.postgres.enqueue import enqueue_job

SIZES = (10_000, 1_000_000)
SECRET = "of this bench"  # noqa: S105 - nobody's
ROWS = "select n, md5(n::text) as name, now() as at, n * 1.5 as price from generate_series(1, $1::int) n"


async def split(_: Any, params: report.Params) -> list[report.Params]:
    """Make one chunk of it all."""
    return [params]


async def rows(tx: Any, chunk: report.Params) -> AsyncIterator[Any]:
    """Bring the rows by a cursor."""
    async for row in tx.cursor(ROWS, chunk["rows"], prefetch=1_000):
        yield row


app = App(
    handlers=report.handlers(
        {"numbers": report.Report(columns=("n", "name", "at", "price"), split=split, rows=rows)}
    )
)


def memory(pid: int) -> str:
    """Tell what a process has in memory, and the most that it ever had."""
    told = Path(f"/proc/{pid}/status").read_text()
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in told.splitlines()
             if line.startswith(("VmRSS", "VmHWM"))}  # fmt: skip
    return f"{found['VmRSS']:.0f} MiB (at most {found['VmHWM']:.0f})"


async def main() -> None:
    """Make and fetch a report of each size, one after the other, by the same two processes."""
    env = {"RELIQ_APP": "benchmarks.report_memory:app", "RELIQ_REPORT_SECRET": SECRET}
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder), place=Place(), env=env) as stack:
            connection = await asyncpg.connect(stack.dsn)
            now = await connection.fetchval("select now()")
            async with httpx.AsyncClient(timeout=60) as http:
                for size in SIZES:
                    began_s = anyio.current_time()
                    made = await enqueue_job(connection, report.request("numbers", {"rows": size}))
                    link = report_link(
                        stack.receiver, SECRET.encode(), made.job_id, now + timedelta(hours=1)
                    )
                    progress = link.replace("?", "/progress?")
                    while (await http.get(progress)).json()["state"] != "ready":
                        await anyio.sleep(0.2)
                    made_s = anyio.current_time() - began_s
                    length = 0
                    async with http.stream("GET", link) as answer:
                        async for part in answer.aiter_bytes():
                            length += len(part)
                    sys.stdout.write(
                        f"{size:>9,} rows, {length / 2**20:5.1f} MiB, made in {made_s:4.1f} s, "
                        f"fetched in {anyio.current_time() - began_s - made_s:4.1f} s: "
                        f"worker {memory(stack.processes['worker'].pid)}, "
                        f"receiver {memory(stack.processes['serve'].pid)}\n"
                    )
            await connection.close()


if __name__ == "__main__":
    anyio.run(main)
