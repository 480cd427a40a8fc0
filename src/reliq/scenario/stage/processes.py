"""
The shipped commands, started by exec with nothing but environment variables.

Whatever a process says goes straight into a file, so that its last words survive a SIGKILL. Each
has a session of its own: Ctrl-C in the terminal reaches only us, and we end them.
"""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import httpx
from anyio.abc import Process, TaskGroup

from reliq.errors import HarnessError
from reliq.scenario.recorder import Recorder

_PAUSE_S: Final = 0.02
_TAIL_LINES: Final = 12


@dataclass(slots=True, kw_only=True)
class Processes:
    """All processes of a run, by name."""

    recorder: Recorder
    folder: Path
    code: Path
    watchers: TaskGroup
    names: dict[int, str]
    _running: dict[str, Process] = field(default_factory=dict)
    _stopped: set[str] = field(default_factory=set)

    async def start(self, name: str, *words: str, env: Mapping[str, str]) -> None:
        """Start `reliq WORDS…`; its end, whenever it comes, is written into the history."""
        process = await self._spawn(name, words, env)
        self._running[name] = process
        self.names[process.pid] = name
        self.recorder.record("process", "started", p=name, pid=process.pid, command=words[0])
        self.watchers.start_soon(self._watch, name, process)

    async def run(self, name: str, *words: str, env: Mapping[str, str]) -> None:
        """
        Run a command to its end.

        Raises:
            HarnessError: its exit code was not 0; its last words are quoted.

        """
        process = await self._spawn(name, words, env)
        try:
            code = await process.wait()
        finally:
            await _end(process)
        if code != 0:
            raise HarnessError(f"`reliq {' '.join(words)}` ended with {code}:\n{self._tail(name)}")

    async def ready(self, name: str, url: str) -> None:
        """
        Wait until a process says that it is ready; the caller sets the deadline.

        Raises:
            HarnessError: it ended before it was.

        """
        async with httpx.AsyncClient(trust_env=False, timeout=2) as client:
            while self._running[name].returncode is None:
                try:
                    if (await client.get(url)).is_success:
                        return
                except httpx.TransportError:
                    pass
                await anyio.sleep(_PAUSE_S)
        code = self._running[name].returncode
        raise HarnessError(f"{name} ended with {code} before it was ready:\n{self._tail(name)}")

    def signal(self, name: str, sig: str) -> int:
        """Signal a process; return how many were hit: 0 when it is gone or never was."""
        process = self._running.get(name)
        if process is None or process.returncode is not None:
            return 0
        process.send_signal(signal.Signals[f"SIG{sig}"])
        if sig == "STOP":
            self._stopped.add(name)
        elif sig == "CONT":
            self._stopped.discard(name)
        return 1

    def stopped(self) -> list[str]:
        """Name the processes that were stopped, have not been continued and are still there."""
        return sorted(name for name in self._stopped if self._running[name].returncode is None)

    async def close(self) -> None:
        """End whatever still runs."""
        for process in self._running.values():
            await _end(process)

    async def _spawn(self, name: str, words: tuple[str, ...], env: Mapping[str, str]) -> Process:
        with self._log(name).open("ab") as log:
            return await anyio.open_process(
                [sys.executable, "-m", "reliq", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={
                    "PATH": "/usr/local/bin:/usr/bin:/bin",
                    "LC_ALL": "C.UTF-8",
                    "TZ": "UTC",
                    "PYTHONPATH": str(self.code),
                    "PYTHONUNBUFFERED": "1",
                    **env,
                },
                start_new_session=True,
            )

    async def _watch(self, name: str, process: Process) -> None:
        code = await process.wait()
        self.recorder.record("process", "exited", p=name, code=code)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _tail(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


@asynccontextmanager
async def open_processes(
    recorder: Recorder, *, folder: Path, code: Path, names: dict[int, str]
) -> AsyncIterator[Processes]:
    """
    Hold the processes of a run; leaving the block kills those that are left.

    `names` is filled: the name of each process by its number.
    """
    async with anyio.create_task_group() as watchers:
        processes = Processes(
            recorder=recorder, folder=folder, code=code, watchers=watchers, names=names
        )
        try:
            yield processes
        finally:
            with anyio.CancelScope(shield=True):
                await processes.close()


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    with anyio.CancelScope(shield=True):
        await process.wait()
