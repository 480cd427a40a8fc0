"""
The service that the jobs call: a real HTTP server with a list of rules and a log.

Handlers of the drill say in headers which job, attempt and process calls; the rest of what is
logged (key, body, moment) any client would show.
"""

import hashlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from typing_extensions import override

from reliq.scenario.model import Reply, Rule
from reliq.scenario.recorder import Recorder
from reliq.servers.loopback import HOST

_OTHERWISE: Final = Reply()
_PAUSE_S: Final = 0.005


@dataclass(slots=True, kw_only=True)
class Upstream:
    """Answers by the first rule that is not used up, with 200 when all are."""

    url: str
    rules: Sequence[Rule]
    recorder: Recorder
    names: Mapping[int, str]
    _closing: anyio.Event = field(default_factory=anyio.Event)
    _calls: Iterator[int] = field(default_factory=lambda: count(1))
    _used: Counter[tuple[int, int | None]] = field(default_factory=Counter)

    async def answer(self, request: Request) -> Response:
        """Log the request, wait as the rule says, log and send the reply."""
        body = await request.body()
        job, call = int(request.headers.get("drill-job", "0")), next(self._calls)
        rule, reply = self._choose(job)
        self.recorder.record(
            "upstream", "request", p=self._name(int(request.headers.get("drill-process", "0"))),
            call=call, job=job, attempt=int(request.headers.get("drill-attempt", "0")),
            key=request.headers.get("idempotency-key", ""),
            body=hashlib.sha256(body).hexdigest()[:16],
        )  # fmt: skip
        with anyio.move_on_after(reply.delay.total_seconds()):
            await self._closing.wait()
        self.recorder.record(
            "upstream", "response", call=call, job=job, status=reply.status, rule=rule
        )
        return PlainTextResponse(f"the drill's upstream says {reply.status}\n", reply.status)

    def close(self) -> None:
        """Let those who wait for an answer have it now: nobody listens any more."""
        self._closing.set()

    def _name(self, pid: int) -> str:
        return self.names.get(pid, f"pid {pid}")

    def _choose(self, job: int) -> tuple[int, Reply]:
        """Take the first rule that has something left for this job; -1 is no rule."""
        for n, rule in enumerate(self.rules):
            used, used_by_job = self._used[n, None], self._used[n, job]
            if (rule.times is None or used < rule.times) and (
                rule.times_per_job is None or used_by_job < rule.times_per_job
            ):
                self._used[n, None] += 1
                self._used[n, job] += 1
                return n, rule.reply
        return -1, _OTHERWISE


class _Server(uvicorn.Server):
    """Leaves the signals to whoever runs the harness."""

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield


@asynccontextmanager
async def open_upstream(
    rules: Sequence[Rule], recorder: Recorder, names: Mapping[int, str]
) -> AsyncIterator[Upstream]:
    """
    Serve for as long as the block runs.

    `names` may grow meanwhile; a process that is not in it is logged as `pid N`.
    """
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        upstream = Upstream(
            url=f"http://{HOST}:{port}/", rules=rules, recorder=recorder, names=names
        )
        app = Starlette(routes=[Route("/{path:path}", upstream.answer, methods=["POST"])])
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=1,
            )
        )
        async with anyio.create_task_group() as serving:
            serving.start_soon(lambda: server.serve(sockets=[listener]))
            while not server.started:
                await anyio.sleep(_PAUSE_S)
            try:
                yield upstream
            finally:
                upstream.close()
                server.should_exit = True
