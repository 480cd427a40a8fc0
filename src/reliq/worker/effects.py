"""
What a handler does outside, once: `job.once(key)`.

The ledger remembers the key before the effect and the result after it, or that it was refused, all
under the fence. What
happened to an effect in between nobody but the provider can know, so it is offered as unknown.
"""

from collections.abc import Awaitable
from typing import Any

import anyio

from reliq.domain.event import storable_key
from reliq.domain.text import storable_json
from reliq.errors import EffectTaken, LeaseLost
from reliq.job import Effect
from reliq.ports import Queue
from reliq.worker.hand import Attempt


async def once(queue: Queue, attempt: Attempt, key: str) -> Effect:
    """Reserve an effect for an attempt, or find what is known of it; see `Job.once`."""
    name: object = key
    if not isinstance(name, str) or not name:
        raise ValueError(f"job.once() takes a text that names the effect, not {name!r}")
    _check_moment(attempt, "once")
    claim, stored = attempt.claim, storable_key(key)
    found = await queue.reserve_effect(claim, stored)

    async def finish(result: Any) -> None:
        _check_moment(attempt, "done")
        text = storable_json(result, "the result of an effect")
        await write_down(queue.finish_effect(claim, stored, text))

    async def release() -> None:
        _check_moment(attempt, "release")
        await write_down(queue.release_effect(claim, stored))

    async def write_down(writing: Awaitable[bool]) -> None:
        with anyio.CancelScope(shield=True):  # it is so, whatever becomes of the handler
            is_ours = await writing
        if not is_ours:
            raise LeaseLost(f"job {claim.job_id} has no hold of the effect {key!r} any more")

    match found.answer:
        case "lost":
            raise LeaseLost(f"job {claim.job_id} is no longer ours: it may begin no effect")
        case "taken":
            raise EffectTaken(f"job {found.holder} is at the effect {key!r}")
        case answer:
            return Effect(key, answer, found.result, finish, release)


def _check_moment(attempt: Attempt, what: str) -> None:
    if attempt.is_in_transaction or attempt.is_settled:
        raise RuntimeError(f"{what}() comes before job.transaction(), which settles the job")
