"""
A parent that has imported the shipped command and nothing else, and forks it on demand.

Run as a program, by its path: it must not import the harness. It talks over the datagram socket
that is its standard input:

    → {"id": 1, "words": ["worker", …], "env": {…}, "cwd": "/…"} and a file descriptor for what is said
    ← {"id": 1, "pid": 4711}
    ← {"pid": 4711, "code": 0}          when it has ended; negative: the signal

Forking takes milliseconds where starting an interpreter takes half a second of imports. When the
socket closes, every child is killed.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from typing import Any

IMPORTS = (
    "reliq.cli", "reliq.cli.run", "reliq.cli.desk", "reliq.wiring.worker", "reliq.wiring.receiver",
    "reliq.wiring.loading", "reliq.worker.health", "reliq.automations.drill", "reliq.postgres.desk",
    "uvicorn.protocols.http.auto", "uvicorn.loops.auto", "uvloop", "httptools",
    "anyio._backends._asyncio", "anyio._core._signals", "httpcore", "email.mime.text", "encodings.idna",
)  # fmt: skip
"""What a command would import anyway; what is not installed is left out."""


def main() -> None:
    """Import, say that we are ready, fork until the socket closes."""
    control = socket.socket(fileno=0)
    for name in IMPORTS:
        with suppress(ModuleNotFoundError):
            import_module(name)
    gc.collect()
    gc.freeze()
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: set[int] = set()
    with suppress(OSError):  # who started us may be gone already: the loop sees it
        control.send(b'{"ready": true}')
    while True:
        places: list[Any] = [control, ended]
        readable = select.select(places, [], [])[0]
        if ended in readable:
            os.read(ended, 4096)
            _bury(control, children)
        if control in readable:
            message, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 1)
            if not message:
                break
            order = json.loads(message)
            pid = _fork(order, descriptors[0], control, (ended, wake))
            os.close(descriptors[0])
            children.add(pid)
            control.send(json.dumps({"id": order["id"], "pid": pid}).encode())
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _bury(control: socket.socket, children: set[int]) -> None:
    """Tell of every child that has ended."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        children.discard(pid)
        code = os.waitstatus_to_exitcode(status)
        with suppress(OSError):
            control.send(json.dumps({"pid": pid, "code": code}).encode())


def _fork(order: dict[str, Any], said: int, control: socket.socket, pipes: tuple[int, int]) -> int:
    """Fork the shipped command: in the child it looks as if it had been started by exec."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (said, 1), (said, 2)):
            os.dup2(source, target)
        for descriptor in (*pipes, said):
            os.close(descriptor)
        control.detach()
        os.chdir(order["cwd"])
        os.environ.clear()  # noqa: TID251 - as exec does
        os.environ.update(order["env"])  # noqa: TID251
        sys.argv = ["reliq", *order["words"]]
        code = _run()
    except BaseException:  # noqa: BLE001 - whatever it is, it belongs into the child's log
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run() -> int:
    try:
        import_module("reliq.cli").main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)  # noqa: T201 - as the interpreter would
        return 1
    return 0


if __name__ == "__main__":
    main()
