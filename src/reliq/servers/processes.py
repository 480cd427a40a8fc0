"""
Processes seen and signalled from outside, and a guard that outlives us by a moment.

A postmaster's children are process groups of their own, so a signal to its group misses them;
they are found by their parent. `/proc` is read where there is one, because small images have
no `ps`; elsewhere (macOS) `ps` is asked.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reliq.errors import ServerFailed

_PROC: Final = Path("/proc")
_PAUSE_S: Final = 0.005

_GUARD: Final = 'read -r _; kill -QUIT "$1"; kill -CONT "$1"'


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table; `state` is ps's letter: T is halted, Z dead but unread."""

    parent: int
    state: str
    name: str


def processes() -> dict[int, Process]:
    """Read the table of all processes, by pid."""
    return _from_proc() if (_PROC / "self/stat").exists() else _from_ps()


def children_of(pid: int) -> list[int]:
    """Find the processes that `pid` started, and that did not leave it."""
    return [child for child, process in processes().items() if process.parent == pid]


def send(signum: signal.Signals, pids: Collection[int]) -> None:
    """Signal each process; those that are gone already are passed over."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)


def halt(pids: Collection[int]) -> None:
    """Stop processes where they stand, and wait until they do: no fork is under way then."""
    send(signal.SIGSTOP, pids)
    _await(f"processes {sorted(pids)} to halt", lambda: _states(set(pids)) <= {"T", "Z"})


def await_gone(pids: Collection[int]) -> None:
    """Wait until every process has ended; one that nobody has reaped yet counts as ended."""
    _await(f"processes {sorted(pids)} to end", lambda: _states(set(pids)) <= {"Z"})


class Guard:
    """
    Ends a postmaster when *we* end, however that happens, SIGKILL included.

    A shell waits at the other end of a pipe that only this process holds; the kernel closes
    it when we are gone, and the shell sends SIGQUIT, Postgres's immediate shutdown (and
    SIGCONT, should it be frozen). PR_SET_PDEATHSIG would do without a process, but fires
    when the *thread* that started the server ends, and exists on Linux only.

    Limit: a child forked from us without exec inherits the pipe and keeps the guard waiting
    until it ends too.
    """

    def __init__(self, pid: int) -> None:
        self._shell = subprocess.Popen(  # noqa: S603 (a constant script, a number)
            ["/bin/sh", "-c", _GUARD, "reliq-postgres-guard", str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            start_new_session=True,
        )

    def release(self) -> None:
        """Dismiss the guard without a signal; killed first, as the pipe's end is its cue."""
        self._shell.kill()
        self._shell.wait()
        if self._shell.stdin is not None:
            self._shell.stdin.close()


def _states(pids: set[int]) -> set[str]:
    return {process.state for pid, process in processes().items() if pid in pids}


def _await(what: str, is_so: Callable[[], bool], timeout_s: float = 10) -> None:
    until = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > until:
            raise ServerFailed(f"waited {timeout_s:g} s for {what}, in vain")
        time.sleep(_PAUSE_S)


def _from_proc() -> dict[int, Process]:
    table = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):  # ended while we looked
            # `pid (name) state parent …`, and the name may hold spaces and parentheses.
            head, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
            state, parent, *_ = rest.split()
            table[int(folder.name)] = Process(int(parent), state, head.partition("(")[2])
    return table


def _from_ps() -> dict[int, Process]:
    command = ["/bin/ps", "-axo", "pid=,ppid=,stat=,comm="]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    table = {}
    for line in lines.splitlines():
        pid, parent, state, name = line.split(maxsplit=3)
        table[int(pid)] = Process(int(parent), state[0], name)
    return table
