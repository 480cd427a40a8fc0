"""
What a contestant says and hears: JSON, one object a line.

`PROGRAM WHAT [ARGUMENTS]`, the database's address in `BENCH_DSN`:

    about            who it is, and what cannot be compared
    setup            make the tables in an empty database
    fill N           put N jobs into the queue, as many at once as it can
    enqueue N C      put N jobs into it one by one, from C clients
    drain            work: `{"ready": true}`, then on a line `go`; `{"done": n, "at": unix}` while it
                     works, `{"stopped": true, …}` after a line `stop`
    latency N MS     an idle worker, and a job every MS milliseconds: `{"ms": […]}`
    left             `{"left": n}`: jobs that are not finished
"""

import json
import os
import resource
import sys
import time
from typing import Any, Final, Self

import anyio
import anyio.to_thread

PAYLOAD: Final = {"order": 1234, "email": "someone@example.org", "n": 1}
"""55 bytes of JSON, as small jobs carry."""

TELL_EVERY_S: Final = 0.1


def dsn() -> str:
    """Return the address of the database."""
    return os.environ["BENCH_DSN"]  # noqa: TID251 - the protocol's, no setting of the product


def say(**fields: Any) -> None:
    """Say one line."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def cpu_s() -> float:
    """Return the seconds of processor that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def heard() -> str:
    """Wait for a line; empty when nobody will say anything any more."""
    line: str = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    return line.strip()


class Timed:
    """Seconds, and seconds of processor, of a block: `with Timed() as timed: …`."""

    def __enter__(self) -> Self:
        self._began_s, self._cpu_s = time.perf_counter(), cpu_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began_s
        self.cpu_s = cpu_s() - self._cpu_s


class Count:
    """How many jobs have run, told a few times a second while it grows."""

    def __init__(self) -> None:
        self.done, self.at = 0, 0.0
        self._told = 0

    def one(self) -> None:
        """Count a job."""
        self.done += 1
        self.at = time.time()

    async def tell(self) -> None:
        """Tell until cancelled."""
        while True:
            if self.done > self._told:
                self._told = self.done
                say(done=self._told, at=self.at)
            await anyio.sleep(TELL_EVERY_S)
