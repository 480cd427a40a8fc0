"""
The service that the jobs call: an HTTP server with a list of rules, a log, and bad manners.

Handlers of the drill say in headers which job, attempt and process calls; the rest of what is
logged (key, body, moment) any client would show. h11 speaks the protocol, so that an answer
can be cut at any byte.
"""

import hashlib
import math
import os
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Final, Literal

import anyio
import h11
from anyio.abc import SocketAttribute, SocketStream

from reliq.scenario.model import Reply, Rule
from reliq.scenario.recorder import Recorder
from reliq.servers.loopback import HOST

_OTHERWISE: Final = Reply()
_RESET: Final = struct.pack("ii", 1, 0)
_CHUNK: Final = 65_536

How = Literal["whole", "cut", "unheard"]
"""Whether the answer was sent as a whole, cut short, or to a caller who had gone."""


@dataclass(slots=True, kw_only=True)
class Upstream:
    """Answers by the first rule that is not used up, with 200 when all are."""

    port: int
    rules: Sequence[Rule]
    recorder: Recorder
    names: Mapping[int, str]
    url: str = ""
    _first: int = 0
    _calls: Iterator[int] = field(default_factory=lambda: count(1))
    _used: Counter[tuple[int, int | None]] = field(default_factory=Counter)

    def replace(self, rules: Sequence[Rule]) -> Sequence[Rule]:
        """Answer by other rules from now on, numbered after those before; return the old ones."""
        old, self.rules = self.rules, rules
        self._first += len(old)
        return old

    async def serve(self, stream: SocketStream) -> None:
        """Answer the requests of one connection until either side is tired of it."""
        async with stream:
            try:
                while await self._one(stream):
                    pass
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, h11.ProtocolError):
                return

    async def _one(self, stream: SocketStream) -> bool:
        """Take one request and answer it; False when the connection is of no more use."""
        connection = h11.Connection(h11.SERVER)
        request, body = await _request(connection, stream)
        if request is None:
            return False
        heads = {name.decode(): value.decode() for name, value in request.headers}
        job, call = int(heads.get("drill-job", "0")), next(self._calls)
        rule, reply = self._choose(job)
        self.recorder.record(
            "upstream", "request", p=self._name(int(heads.get("drill-process", "0"))),
            call=call, job=job, attempt=int(heads.get("drill-attempt", "0")),
            key=heads.get("idempotency-key", heads.get("webhook-id", "")), body=hashlib.sha256(body).hexdigest()[:16],
            path=request.target.decode(),
        )  # fmt: skip
        how: How = "whole" if reply.reset is None else "cut"
        if not await _stays(stream, None if reply.hang else reply.delay.total_seconds()):
            how = "unheard"
        elif reply.drip is not None:
            how = await _drip(connection, stream, reply)
        self.recorder.record(
            "upstream", "response", call=call, job=job, status=reply.status, rule=rule, how=how,
            retry_after_s=_retry_after_s(reply), location=reply.location,
        )  # fmt: skip
        if how == "unheard" or reply.drip is not None:
            return how == "whole"
        return await _answer(connection, stream, reply)

    def _name(self, pid: int) -> str:
        return self.names.get(pid, f"pid {pid}")

    def _choose(self, job: int) -> tuple[int, Reply]:
        """Take the first rule that has something left for this job; -1 is no rule."""
        for n, rule in enumerate(self.rules, self._first):
            used, used_by_job = self._used[n, None], self._used[n, job]
            if (rule.times is None or used < rule.times) and (
                rule.times_per_job is None or used_by_job < rule.times_per_job
            ):
                self._used[n, None] += 1
                self._used[n, job] += 1
                return n, rule.reply
        return -1, _OTHERWISE


async def _request(
    connection: h11.Connection, stream: SocketStream
) -> tuple[h11.Request | None, bytes]:
    request, body = None, b""
    while True:
        match connection.next_event():
            case h11.NEED_DATA:
                try:
                    connection.receive_data(await stream.receive(_CHUNK))
                except anyio.EndOfStream:
                    return None, b""
            case h11.Request() as found:
                request = found
            case h11.Data(data=data):
                body += bytes(data)
            case h11.EndOfMessage():
                return request, body
            case _:
                return None, b""


async def _stays(stream: SocketStream, s: float | None) -> bool:
    """Let time pass, for ever if `s` is None; False as soon as the caller has gone."""
    with anyio.move_on_after(math.inf if s is None else s):
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await stream.receive(_CHUNK)
        return False  # who speaks before it has its answer is of no use either
    return True


async def _answer(connection: h11.Connection, stream: SocketStream, reply: Reply) -> bool:
    """Send a reply at once, or as much of it as is meant; whether the connection is of more use."""
    head, data = _wire(connection, reply)
    match reply.reset:
        case None:
            await stream.send(head + data)
            return True
        case "before":
            pass
        case "after-headers":
            await stream.send(head)
        case "mid-body":
            await stream.send(head + data[: len(data) // 2])
    _reset(stream)
    return False


async def _drip(connection: h11.Connection, stream: SocketStream, reply: Reply) -> How:
    """Send a reply's body byte by byte, and say whether the caller stayed to hear it all."""
    head, data = _wire(connection, reply)
    pause_s = 0.0 if reply.drip is None else reply.drip.total_seconds()
    try:
        await stream.send(head)
        for n in range(len(data)):
            await stream.send(data[n : n + 1])
            if n + 1 < len(data) and not await _stays(stream, pause_s):
                return "unheard"
    except anyio.BrokenResourceError:
        return "unheard"
    return "whole"


def _wire(connection: h11.Connection, reply: Reply) -> tuple[bytes, bytes]:
    """Write a reply as HTTP has it: its head, and its body."""
    body = reply.body.encode()
    headers = {"content-length": str(len(body)), "content-type": "text/plain", **reply.headers}
    if reply.retry_after is not None:
        headers["retry-after"] = reply.retry_after
    if reply.location is not None:
        headers["location"] = reply.location
    head = connection.send(h11.Response(status_code=reply.status, headers=list(headers.items())))
    data = connection.send(h11.Data(data=body))
    connection.send(h11.EndOfMessage())
    return head or b"", data or b""


def _retry_after_s(reply: Reply) -> float | None:
    """Return for how long a reply asks to be left alone; a date counts from the reply's own."""
    if reply.retry_after is None:
        return None
    if reply.retry_after.isascii() and reply.retry_after.isdigit():
        return float(reply.retry_after)
    sent = next((value for name, value in reply.headers.items() if name.lower() == "date"), None)
    if sent is None:
        return None
    try:
        pause = parsedate_to_datetime(reply.retry_after) - parsedate_to_datetime(sent)
    except ValueError:  # it asks for nothing that can be understood
        return None
    return max(0.0, pause.total_seconds())


def _reset(stream: SocketStream) -> bool:
    """Reset the connection now: another file takes the socket's place, and its last holder is gone."""
    raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django's
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with open(os.devnull, "r+b", buffering=0) as nothing:  # noqa: PTH123
        os.dup2(
            nothing.fileno(), raw.fileno()
        )  # to close the stream would send an orderly end first
    return False


@asynccontextmanager
async def open_upstream(
    rules: Sequence[Rule], recorder: Recorder, names: Mapping[int, str]
) -> AsyncIterator[Upstream]:
    """
    Serve for as long as the block runs.

    `names` may grow meanwhile; a process that is not in it is logged as `pid N`.
    """
    listener = await anyio.create_tcp_listener(local_host=HOST)
    port: int = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
    upstream = Upstream(
        port=port, rules=rules, recorder=recorder, names=names, url=f"http://{HOST}:{port}/"
    )
    async with listener, anyio.create_task_group() as serving:
        serving.start_soon(listener.serve, upstream.serve)
        yield upstream
        serving.cancel_scope.cancel()
