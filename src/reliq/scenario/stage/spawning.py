"""Two ways to start the shipped command: by exec, and by forking a parent that has imported it."""

import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, Protocol

import anyio

from reliq.errors import HarnessError
from reliq.scenario.stage import zygote

READY_S: Final = 20.0
_DATAGRAM: Final = 1 << 16
_LINE: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


class Child(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it runs."""
        ...

    async def wait(self) -> int:
        """Wait for its end."""
        ...


class Spawn(Protocol):
    """Starts `reliq WORDS…`; what it says goes to the descriptor `said`."""

    async def __call__(
        self, words: Sequence[str], *, env: Mapping[str, str], cwd: Path, said: int
    ) -> Child:
        """Start it."""
        ...


def environment(code: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return all that a process gets: nothing of ours but what is given here."""
    return {**_LINE, "PYTHONPATH": str(code), "PYTHONUNBUFFERED": "1", **env}


def by_exec(code: Path) -> Spawn:
    """Start an interpreter for each process, as production does."""

    async def spawn(words: Sequence[str], *, env: Mapping[str, str], cwd: Path, said: int) -> Child:
        return await anyio.open_process(
            [sys.executable, "-m", "reliq", *words],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=cwd,
            env=environment(code, env), start_new_session=True,
        )  # fmt: skip

    return spawn


@dataclass(slots=True)
class Forked:
    """A child of the parent that forks; it tells us of the end."""

    pid: int
    returncode: int | None = None
    _ended: anyio.Event = field(default_factory=anyio.Event)

    async def wait(self) -> int:
        """Wait for its end."""
        await self._ended.wait()
        assert self.returncode is not None  # noqa: S101 - `ended` sets both
        return self.returncode

    def ended(self, code: int) -> None:
        """Note how it ended."""
        self.returncode = code
        self._ended.set()


@dataclass(slots=True)
class _Zygote:
    control: socket.socket
    code: Path
    _ready: anyio.Event = field(default_factory=anyio.Event)
    _numbers: Callable[[], int] = field(default_factory=lambda: count(1).__next__)
    _asked: dict[int, tuple[anyio.Event, list[Forked]]] = field(default_factory=dict)
    _children: dict[int, Forked] = field(default_factory=dict)

    async def spawn(
        self, words: Sequence[str], *, env: Mapping[str, str], cwd: Path, said: int
    ) -> Child:
        with anyio.fail_after(READY_S):
            await self._ready.wait()
        number = self._numbers()
        answered, found = self._asked[number] = anyio.Event(), []
        order = {"id": number, "words": list(words), "cwd": str(cwd),
                 "env": environment(self.code, env)}  # fmt: skip
        socket.send_fds(self.control, [json.dumps(order).encode()], [said])
        with anyio.fail_after(READY_S):
            await answered.wait()
        return found[0]

    async def listen(self) -> None:
        """Hear of children until cancelled."""
        while True:
            await anyio.wait_readable(self.control)
            message = self.control.recv(_DATAGRAM)
            if not message:
                raise HarnessError("the parent of the processes has ended")
            said = json.loads(message)
            if "ready" in said:
                self._ready.set()
            elif "id" in said:
                answered, found = self._asked.pop(said["id"])
                found.append(self._children.setdefault(said["pid"], Forked(said["pid"])))
                answered.set()
            else:
                self._children.setdefault(said["pid"], Forked(said["pid"])).ended(said["code"])
                del self._children[said["pid"]]


@asynccontextmanager
async def by_fork(code: Path) -> AsyncIterator[Spawn]:
    """
    Hold a parent that forks; leaving the block kills whatever it has started.

    It imports while the caller goes on; who is the first to start a process waits for it.
    Raises HarnessError, inside an ExceptionGroup, when it ends by itself.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        process = await anyio.open_process(
            [sys.executable, "-P", zygote.__file__],
            stdin=theirs.fileno(), stdout=None, stderr=None,
            env=environment(code, {}), start_new_session=True,
        )  # fmt: skip
        theirs.close()
        try:
            async with anyio.create_task_group() as tasks:
                parent = _Zygote(ours, code)
                tasks.start_soon(parent.listen)
                yield parent.spawn
                tasks.cancel_scope.cancel()
        finally:
            ours.close()
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(2):
                    await process.wait()
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    finally:
        ours.close()
        theirs.close()
