"""A program that takes part, seen from outside; what it says and hears is in `protocol.py`."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from reliq import errors
from reliq.errors import ReliqError

ANSWER_S: Final = 600.0
CODE: Final = str(Path(errors.__file__).parents[1])
"""Where we were imported from: what is started runs the same code."""

_ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


class BenchFailed(ReliqError):
    """A contestant, or the ground under all of them, did not do what it was asked."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """`command` is what is run, with a word of the protocol behind it."""

    name: str
    command: tuple[str, ...]

    async def ask(self, *words: object, dsn: str = "") -> dict[str, Any]:
        """
        Have one thing done; return what it said last.

        Raises:
            BenchFailed: it ended badly, or not at all.

        """
        try:
            with anyio.fail_after(ANSWER_S):
                done = await anyio.run_process(
                    [*self.command, *map(str, words)], env=self._environment(dsn), check=False
                )
        except TimeoutError:
            raise BenchFailed(f"{self.name} {words[0]}: no end in {ANSWER_S:g} s") from None
        if done.returncode != 0:
            tail = done.stderr.decode(errors="replace")[-2_000:]
            raise BenchFailed(f"{self.name} {words[0]} ended with {done.returncode}:\n{tail}")
        lines = done.stdout.decode().splitlines()
        answer: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return answer

    @asynccontextmanager
    async def working(self, dsn: str) -> AsyncIterator["Working"]:
        """Start it as a worker that waits for `go`."""
        async with await anyio.open_process(
            [*self.command, "drain"], env=self._environment(dsn), stderr=subprocess.DEVNULL
        ) as process:
            try:
                working = Working(self.name, process)
                await working.hear("ready")
                yield working
            finally:
                if process.returncode is None:
                    process.kill()

    def _environment(self, dsn: str) -> dict[str, str]:
        return {**_ENVIRONMENT, "BENCH_DSN": dsn, "PYTHONPATH": CODE}


@dataclass(slots=True)
class Working:
    """A contestant that works off jobs; `told` holds what it has said of its progress."""

    name: str
    process: Process
    told: list[dict[str, Any]] = field(default_factory=list)
    _rest: str = ""

    @property
    def done(self) -> int:
        """Jobs done, as far as it has told."""
        return int(self.told[-1]["done"]) if self.told else 0

    async def say(self, word: str) -> None:
        """Say a word."""
        assert self.process.stdin is not None  # noqa: S101 - opened with a pipe
        await self.process.stdin.send(f"{word}\n".encode())

    async def hear(self, word: str) -> dict[str, Any]:
        """Wait for the line that holds `word`; what it tells of its progress is kept."""
        assert self.process.stdout is not None  # noqa: S101 - opened with a pipe
        with anyio.fail_after(ANSWER_S):
            async for text in TextReceiveStream(self.process.stdout):
                *lines, self._rest = (self._rest + text).split("\n")
                for said in map(json.loads, lines):
                    if word in said:
                        return dict(said)
                    self.told.append(said)
        raise BenchFailed(f"{self.name} ended before it said {word!r}")


OURS: Final = Contestant("reliq", (sys.executable, "-m", "reliq.bench.ours"))
RAW: Final = Contestant("raw", (sys.executable, "-m", "reliq.bench.raw"))


def peers_in(folder: Path) -> list[Contestant]:
    """Find the peers that are installed: each has a program `run` in a folder of its name."""
    return [Contestant(found.parent.name, (str(found),)) for found in sorted(folder.glob("*/run"))]
