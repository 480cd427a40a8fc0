"""
The processes of a run: started with nothing but environment variables, heard line by line.

Whatever a process says goes through a pipe that we drain: what it had written before a SIGKILL
is in the kernel, not in a buffer that died with it. Each has a session of its own: Ctrl-C in
the terminal reaches only us, and we end them.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
from anyio.abc import TaskGroup

from reliq.errors import HarnessError
from reliq.scenario.model.matching import WORDS
from reliq.scenario.recorder import Recorder
from reliq.scenario.stage.client import open_client
from reliq.scenario.stage.spawning import Child, Spawn

_PAUSE_S: Final = 0.01
_TAIL_LINES: Final = 12
_CHUNK: Final = 1 << 16
_HEARD: Final = frozenset(WORDS["process"]) - {"started", "ready", "exited"}
_RENAMED: Final = {"job_id": "job", "job_ids": "jobs"}
_LEFT_OUT: Final = frozenset({"event", "level", "timestamp", "i", "t", "src", "p", "e"})


@dataclass(slots=True)
class Running:
    """One incarnation: `worker-1`, then `worker-1#2`; its role is `worker`."""

    name: str
    child: Child
    is_told_to_end: bool = False

    @property
    def is_up(self) -> bool:
        """Whether it has not ended."""
        return self.child.returncode is None


@dataclass(slots=True, kw_only=True)
class Processes:
    """All processes of a run; `worker-1` means its latest incarnation."""

    recorder: Recorder
    folder: Path
    spawn: Spawn
    watchers: TaskGroup
    names: dict[int, str]
    client: httpx.AsyncClient
    _running: dict[str, Running] = field(default_factory=dict)
    _incarnations: Counter[str] = field(default_factory=Counter)

    def next_name(self, name: str) -> str:
        """Name the next incarnation of a process."""
        self._incarnations[name] += 1
        number = self._incarnations[name]
        return name if number == 1 else f"{name}#{number}"

    async def start(self, name: str, *words: str, env: Mapping[str, str]) -> Running:
        """Start `reliq WORDS…` as the incarnation `name`; its end is written into the history."""
        child, _ = await self._spawn(name, words, env)
        running = self._running[base(name)] = Running(name, child)
        self.names[child.pid] = name
        self.recorder.record("process", "started", p=name, pid=child.pid, command=words[0])
        self.watchers.start_soon(self._watch, running)
        return running

    async def run(self, name: str, *words: str, env: Mapping[str, str]) -> tuple[int, str]:
        """Run a command to its end; return its exit code and what it said."""
        child, heard = await self._spawn(name, words, env)
        code = await child.wait()
        await heard.wait()
        return code, self._log(name).read_text(errors="replace")

    async def ready(self, running: Running, url: str) -> None:
        """
        Wait until a process says that it is ready; the caller sets the deadline.

        Raises:
            HarnessError: it ended before it was.

        """
        while running.is_up:
            try:
                if (await self.client.get(url)).is_success:
                    self.recorder.record("process", "ready", p=running.name, pid=running.child.pid)
                    return
            except httpx.TransportError:
                pass
            await anyio.sleep(_PAUSE_S)
        code, tail = running.child.returncode, self._tail(running.name)
        raise HarnessError(f"{running.name} ended with {code} before it was ready:\n{tail}")

    def chosen(self, to: str) -> list[Running]:
        """Find the processes of a name, an incarnation or a role that are up."""
        return [
            running
            for name, running in self._running.items()
            if to in {name, running.name, name.partition("-")[0]} and running.is_up
        ]

    def signal(self, to: str, sig: str) -> list[str]:
        """Signal processes; name those that were hit: none when all are gone or never were."""
        hit = []
        for running in self.chosen(to):
            os.kill(running.child.pid, signal.Signals[f"SIG{sig}"])
            running.is_told_to_end |= sig in {"TERM", "INT"}
            hit.append(running.name)
        return hit

    async def halted(self, name: str) -> None:
        """
        Wait until a process that said that it halts itself has done so.

        It says so a moment before: a CONT that comes in between would be lost, and the process
        would halt for ever.
        """
        for running in self.chosen(name):
            while running.is_up and not _is_halted(running.child.pid):
                await anyio.sleep(_PAUSE_S / 10)

    def is_up(self, name: str) -> bool:
        """Whether a process runs."""
        return bool(self.chosen(name))

    @property
    def are_leaving(self) -> bool:
        """Whether a process that was told to end has not ended yet."""
        return any(x.is_told_to_end and x.is_up for x in self._running.values())

    async def close(self) -> None:
        """End whatever still runs."""
        for running in self._running.values():
            if running.is_up:
                with suppress(ProcessLookupError):  # it ended, and nobody has told us yet
                    os.kill(running.child.pid, signal.SIGKILL)
            await running.child.wait()

    async def _spawn(
        self, name: str, words: tuple[str, ...], env: Mapping[str, str]
    ) -> tuple[Child, anyio.Event]:
        """Start it; the event is set when its last word was heard."""
        reading, writing = os.pipe()
        try:
            child = await self.spawn(words, env=env, cwd=self.folder, said=writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        heard = anyio.Event()
        self.watchers.start_soon(self._hear, name, reading, heard)
        return child, heard

    async def _watch(self, running: Running) -> None:
        code = await running.child.wait()
        self.recorder.record("process", "exited", p=running.name, code=code)

    async def _hear(self, name: str, reading: int, heard: anyio.Event) -> None:
        """Write down what a process says, and what of it belongs into the history."""
        os.set_blocking(reading, False)
        rest = b""
        try:
            with self._log(name).open("ab", buffering=0) as log:
                while True:
                    await anyio.wait_readable(reading)
                    chunk = os.read(reading, _CHUNK)
                    if not chunk:
                        return
                    log.write(chunk)
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._note(name, line)
        finally:
            os.close(reading)
            heard.set()

    def _note(self, name: str, line: bytes) -> None:
        if not line.startswith(b"{"):
            return
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            return
        if (e := said.get("event")) in _HEARD:
            fields = {
                _RENAMED.get(key, key): value for key, value in said.items() if key not in _LEFT_OUT
            }
            self.recorder.record("process", e, p=name, **fields)

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def _tail(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


def _is_halted(pid: int) -> bool:
    """Ask the kernel; one without /proc is believed to have been quick enough."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except FileNotFoundError:
        return not Path("/proc/self").exists()
    return stat.rpartition(")")[2].split()[0] in {"T", "Z"}


def base(name: str) -> str:
    """Take the incarnation off a name."""
    return name.partition("#")[0]


@asynccontextmanager
async def open_processes(
    recorder: Recorder, *, folder: Path, spawn: Spawn, names: dict[int, str]
) -> AsyncIterator[Processes]:
    """
    Hold the processes of a run; leaving the block kills those that are left.

    `names` is filled: the name of each process by its number.
    """
    (folder / "logs").mkdir(exist_ok=True)
    async with (
        open_client() as client,
        anyio.create_task_group() as watchers,
    ):
        processes = Processes(
            recorder=recorder, folder=folder, spawn=spawn, watchers=watchers, names=names,
            client=client,
        )  # fmt: skip
        try:
            yield processes
        finally:
            with anyio.CancelScope(shield=True):
                await processes.close()
                watchers.cancel_scope.deadline = anyio.current_time() + 1
