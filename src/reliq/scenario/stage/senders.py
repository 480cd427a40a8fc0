"""The senders: signed deliveries over HTTP, jobs over SQL, and how each ended, as they saw it."""

import hashlib
import hmac
import json
import random
import time
from contextlib import ExitStack, closing
from itertools import cycle
from typing import Any, Final
from uuid import UUID

import anyio
import httpx

from reliq.scenario.model.steps import Deliver, Enqueue
from reliq.scenario.recorder import Recorder
from reliq.scenario.stage.client import open_client
from reliq.scenario.stage.database import Connection
from reliq.scenario.stage.stage import Stage

CLIENT_S: Final = 30.0

_ENQUEUE: Final = """
select job_id, duplicate from reliq.enqueue($1, $2, $3, make_interval(secs => $4::float8))
"""


class Senders:
    """Everything that comes into the system; the dice are the seed's."""

    def __init__(self, stage: Stage, recorder: Recorder, dice: random.Random) -> None:
        self._stage, self._recorder, self._dice = stage, recorder, dice
        self._receivers = cycle(stage.receivers)

    async def deliver(self, what: Deliver) -> None:
        """
        Send every delivery, and every copy of it at once; return when all senders are content.

        The pauses are drawn around `every` (half of it to one and a half), so that seeds differ
        in how deliveries meet the workers' polls.
        """
        async with anyio.create_task_group() as sending:
            for i in range(1, what.count + 1):
                for copy in range(1, what.copies + 1):
                    sending.start_soon(self._send, what, i, copy)
                if i < what.count:
                    await anyio.sleep(self._pause(what.every.total_seconds()))

    async def enqueue(self, what: Enqueue) -> None:
        """Make every job, each copy in a transaction of its own, all copies at once."""
        dsn, others = self._stage.database.dsn, range(what.copies - 1)
        with ExitStack() as stack:
            own = [stack.enter_context(closing(Connection(dsn))) for _ in others]
            programs = [self._stage.database.connection, *own]
            for i in range(1, what.count + 1):
                async with anyio.create_task_group() as asking:
                    for program in programs:
                        asking.start_soon(self._enqueue, what, i, program)
                if i < what.count:
                    await anyio.sleep(self._pause(what.every.total_seconds()))

    async def _enqueue(self, what: Enqueue, i: int, program: Connection) -> None:
        words = {"{i}": str(i), "{upstream}": self._stage.upstream_url}
        payload = json.dumps(filled(what.payload, words))
        key = None if what.key is None else filled(what.key, words)
        values = what.kind, payload, key, self._stage.scenario.seconds(what.run_in)
        [(job, duplicate)] = await program.do(lambda c: c.fetch(_ENQUEUE, *values))
        self._recorder.record(
            "driver", "enqueued", job=job, duplicate=duplicate, kind=what.kind, key=key
        )

    async def _send(self, what: Deliver, i: int, copy: int) -> None:
        for attempt in range(1, what.tries + 1):
            key = what.key.replace("{i}", str(i)).replace("{copy}", str(copy))
            words = {
                "{i}": str(i), "{copy}": str(copy), "{key}": key,
                "{upstream}": self._stage.upstream_url,
                "{uuid}": str(UUID(int=self._dice.getrandbits(128))),
            }  # fmt: skip
            content = filled(what.body, words)
            body = json.dumps({"id": key} | content).encode()
            headers = {name: filled(value, words) for name, value in what.headers.items()}
            began = time.monotonic_ns()
            source = "nobody" if what.forged == "source" else "drill"
            url = f"{next(self._receivers)}/hooks/{source}"
            signed = {"X-Signature": self._proof(body, what.forged), **headers}
            outcome = await self._post(url, body, signed, what.timeout.total_seconds())
            about: dict[str, Any] = {"key": key, "copy": copy, "try": attempt, "began": began}
            about["asked"] = len(content.get("jobs", ()))
            if what.forged is not None:
                about["forged"] = what.forged
            if headers:
                about["headers"] = fingerprint(headers)
            self._recorder.record("driver", "delivery", **about, **outcome)
            if outcome["outcome"] == "accepted" or not what.until_2xx:
                return
            await anyio.sleep(self._pause(what.retry_every.total_seconds()))

    async def _post(
        self, url: str, body: bytes, headers: dict[str, str], s: float
    ) -> dict[str, Any]:
        """
        Return what the sender knows: `accepted`, `refused` (surely not stored) or `unknown`.

        A 5xx is unknown: the receiver may have stopped waiting for a commit that came later.
        An answer that promises storage without naming an event breaks the promise: event is None.
        """
        own = {"Content-Type": "application/json"}
        response = None
        try:
            with anyio.move_on_after(s):
                async with open_client(timeout_s=CLIENT_S) as client:  # one for all is slower
                    response = await client.post(url, content=body, headers={**own, **headers})
        except httpx.ConnectError as error:
            return {"outcome": "refused", "why": str(error)}
        except httpx.TransportError as error:
            return {"outcome": "unknown", "why": f"{type(error).__name__}: {error}"}
        if response is None:
            return {"outcome": "unknown", "why": f"no answer in {s:g} s"}
        if not response.is_success:
            outcome = "unknown" if response.is_server_error else "refused"
            again = response.headers.get("retry-after")
            return {"outcome": outcome, "status": response.status_code, "retry_after": again}
        try:
            answer = response.json()
        except ValueError:
            answer = {}
        return {
            "outcome": "accepted",
            "status": response.status_code,
            "event": answer.get("id"),
            "jobs": answer.get("jobs", 0),
            "duplicate": answer.get("duplicate", False),
        }

    def _proof(self, body: bytes, forged: str | None) -> str:
        """Sign a body, or do what a forger can: sign another one, or with a secret of his own."""
        secret = self._stage.secret + ("!" if forged == "secret" else "")
        signed = body + b" " if forged == "body" else body
        return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()

    def _pause(self, every_s: float) -> float:
        return every_s * self._dice.uniform(0.5, 1.5)


def fingerprint(headers: dict[str, str]) -> str:
    """Name a set of headers, so that deliveries can be seen to differ in them."""
    return hashlib.sha256(json.dumps(headers).encode()).hexdigest()[:12]


def filled(value: Any, words: dict[str, str]) -> Any:
    """Put the words in place of their `{names}`, in all texts of a value."""
    match value:
        case str():
            for word, meaning in words.items():
                value = value.replace(word, meaning)
            return value
        case dict():
            return {name: filled(part, words) for name, part in value.items()}
        case list():
            return [filled(part, words) for part in value]
        case _:
            return value
