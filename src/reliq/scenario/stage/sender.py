"""The senders: signed deliveries over HTTP, and how each one ended, as its sender sees it."""

import hashlib
import hmac
import json
import random
from itertools import cycle
from typing import Any, Final

import anyio
import httpx

from reliq.scenario.model import Deliver
from reliq.scenario.recorder import Recorder
from reliq.scenario.stage import Stage

_TIMEOUT_S: Final = 10.0


async def deliver(what: Deliver, *, stage: Stage, recorder: Recorder, dice: random.Random) -> None:
    """
    Send every delivery once, receivers in turn.

    The pauses are drawn around `every` (half of it to one and a half), so that seeds differ in
    how deliveries meet the workers' polls.
    """
    receivers = cycle(stage.receivers)
    async with httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT_S) as client:
        for i in range(1, what.count + 1):
            key = what.key.replace("{i}", str(i))
            words = {"{i}": str(i), "{key}": key, "{upstream}": stage.upstream.url}
            body = json.dumps({"id": key} | _filled(what.body, words)).encode()
            outcome = await _post(client, f"{next(receivers)}/hooks/drill", body, stage.secret)
            recorder.record("driver", "delivery", key=key, **outcome)
            if i < what.count:
                await anyio.sleep(what.every.total_seconds() * dice.uniform(0.5, 1.5))


async def _post(client: httpx.AsyncClient, url: str, body: bytes, secret: str) -> dict[str, Any]:
    """
    Return what the sender knows: `accepted`, `refused` (surely not stored) or `unknown`.

    An answer that promises storage without naming an event breaks the promise: event is None.
    """
    proof = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-Signature": proof, "Content-Type": "application/json"}
    try:
        response = await client.post(url, content=body, headers=headers)
    except httpx.ConnectError as error:
        return {"outcome": "refused", "why": str(error)}
    except httpx.TransportError as error:
        return {"outcome": "unknown", "why": str(error)}
    if not response.is_success:
        return {"outcome": "refused", "status": response.status_code}
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


def _filled(value: Any, words: dict[str, str]) -> Any:
    match value:
        case str():
            for word, meaning in words.items():
                value = value.replace(word, meaning)
            return value
        case dict():
            return {name: _filled(part, words) for name, part in value.items()}
        case list():
            return [_filled(part, words) for part in value]
        case _:
            return value
