"""
The half of the protocol that the Python adapters share; README.md has the words.

An adapter tells how its queue is used, as a `Peer`: it connects in context managers, so that no
connecting is measured. What is timed, and how, is told here once, so that all are timed alike.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from typing import Final

import uvloop

TICK: Final = 0.1
REST: Final = 1.0
PATIENCE: Final = 30

Payload = dict[str, object]
Handle = Callable[[Mapping[str, object] | bytes], None]
Enqueue = Callable[[Payload], Awaitable[object]]
EnqueueMany = Callable[[list[Payload]], Awaitable[object]]
Start = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a reader of the numbers should know of the peer."""

    name: str
    version: str
    keeps_finished: bool
    fenced: bool
    settings: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """
    How one queue is used.

    `clients(dsn, n)` holds n connections and gives an `enqueue` for each. `bulk(dsn)` gives a call
    for up to `chunk` jobs. `worker(dsn, handle)` connects and gives a `start`; its handler is
    asynchronous and hands the payload to `handle`; leaving it stops when completions are written.
    """

    about: About
    setup: Callable[[str], Awaitable[None]]
    clients: Callable[[str, int], AbstractAsyncContextManager[Sequence[Enqueue]]]
    bulk: Callable[[str], AbstractAsyncContextManager[EnqueueMany]]
    chunk: int
    worker: Callable[[str, Handle], AbstractAsyncContextManager[Start]]
    left: Callable[[str], Awaitable[int]]


def serve(peer: Peer) -> None:
    """Do what the command line says, and answer on stdout."""
    what, *numbers = sys.argv[1:]
    if what == "about":
        _say(asdict(peer.about))
        return
    dsn = os.environ["BENCH_DSN"]  # noqa: TID251 - a program of its own
    uvloop.run(_WHATS[what](peer, dsn, *map(int, numbers)))


def _say(words: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def _order(n: int) -> Payload:
    return {"order": 1234, "email": "someone@example.org", "n": n}


class _Watch:
    """Time that passed, and processor time of this process, since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        return round(time.perf_counter() - self._wall, 6)

    def cpu(self) -> float:
        return round(time.process_time() - self._cpu, 6)


async def _setup(peer: Peer, dsn: str) -> None:
    await peer.setup(dsn)


async def _fill(peer: Peer, dsn: str, jobs: int) -> None:
    payloads = [_order(n) for n in range(jobs)]
    async with peer.bulk(dsn) as enqueue_many:
        watch = _Watch()
        for first in range(0, jobs, peer.chunk):
            await enqueue_many(payloads[first : first + peer.chunk])
        _say({"jobs": jobs, "seconds": watch.seconds(), "cpu_s": watch.cpu()})


async def _enqueue(peer: Peer, dsn: str, jobs: int, clients: int) -> None:
    payloads = iter([_order(n) for n in range(jobs)])

    async def client(enqueue: Enqueue) -> None:
        for payload in payloads:  # shared: whoever is free takes the next one
            await enqueue(payload)

    async with peer.clients(dsn, clients) as enqueues:
        watch = _Watch()
        async with asyncio.TaskGroup() as tasks:
            for enqueue in enqueues:
                tasks.create_task(client(enqueue))
        _say({"jobs": jobs, "seconds": watch.seconds(), "cpu_s": watch.cpu()})


class _Count:
    """Jobs executed so far, and when the last one was."""

    def __init__(self) -> None:
        self.done = 0
        self.at: float | None = None

    def handle(self, _payload: object) -> None:
        self.done += 1
        self.at = time.time()

    async def tell(self) -> None:
        told = 0
        while True:
            await asyncio.sleep(TICK)
            if self.done != told:
                told = self.done
                _say({"done": told, "at": self.at})


async def _drain(peer: Peer, dsn: str) -> None:
    words = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    count = _Count()
    async with peer.worker(dsn, count.handle) as start:
        _say({"ready": True})
        if (await words.readline()).strip() != b"go":
            return
        watch = _Watch()
        await start()
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(count.tell())
            await words.readline()  # `stop`, or nothing any more
            telling.cancel()
    _say({"stopped": True, "done": count.done, "at": count.at, "cpu_s": watch.cpu()})


async def _latency(peer: Peer, dsn: str, jobs: int, every_ms: int) -> None:
    if stale := await peer.left(dsn):
        raise SystemExit(f"latency wants an empty queue, and {stale} jobs are left in this one")
    waits: list[float] = []
    all_heard = asyncio.Event()
    warm = asyncio.Event()

    def handle(payload: Mapping[str, object] | bytes) -> None:
        now = time.monotonic()
        order = json.loads(payload) if isinstance(payload, bytes) else payload
        if order["n"] == 0:
            warm.set()
            return
        waits.append(round(1000 * (now - order["sent"]), 3))
        if len(waits) == jobs:
            all_heard.set()

    async with peer.worker(dsn, handle) as start, peer.clients(dsn, 1) as (enqueue,):
        await start()
        await enqueue(_order(0))  # so that the worker is up, and statements are prepared
        await asyncio.wait_for(warm.wait(), PATIENCE)
        begin = time.monotonic() + REST
        for n in range(jobs):
            await asyncio.sleep(begin + n * every_ms / 1000 - time.monotonic())
            await enqueue(_order(n + 1) | {"sent": time.monotonic()})
        await asyncio.wait_for(all_heard.wait(), PATIENCE)
    _say({"ms": waits})


async def _left(peer: Peer, dsn: str) -> None:
    _say({"left": await peer.left(dsn)})


_WHATS: Final = {
    "setup": _setup,
    "fill": _fill,
    "enqueue": _enqueue,
    "drain": _drain,
    "latency": _latency,
    "left": _left,
}
