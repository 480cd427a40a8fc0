"""
Handlers in a process of their own: what they do to themselves does not touch the worker.

One process an attempt, started anew. It gets the job in one line of JSON and answers with another;
between the two its standard input is its lifeline, which ends with the worker. However the
attempt ends, the process is killed, and with it all that it started.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeVar

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from reliq.domain.job import Claim
from reliq.domain.outcome import Again, Done, Ending, GiveUp, Raised, TimedOut
from reliq.domain.text import TEXT_MAX, error_text, result_json
from reliq.errors import HandlerDied, PermanentError, TemporaryError
from reliq.worker.hand import Attempt

Error = TypeVar("Error", bound=Exception)

CHILD: Final = (sys.executable, "-m", "reliq.wiring.isolated")
"""Loads the App that the settings name, as the worker did, and runs one handler."""

_ANSWER_BYTES_MAX: Final = 16 * TEXT_MAX
_LOOK_EVERY_S: Final = 0.02
_DRAIN_S: Final = 1.0
"""For an answer to be read whose process is gone already."""


async def run_isolated(command: Sequence[str], attempt: Attempt, limit: timedelta) -> Ending:
    """
    Run the handler of an attempt in a new process, to its ending.

    Raises:
        HandlerDied: the process ended without an answer; the message says how.

    """
    began_s = anyio.current_time()
    process = await anyio.open_process(command, stderr=None, start_new_session=True)
    try:
        line = await _ask(process, order(attempt.claim, limit))
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError, PermissionError):  # it and all of its own are gone
                os.killpg(process.pid, signal.SIGKILL)
            await _ended(process)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()
    if line is not None:
        ending, attempt.where, attempt.no_outcome = heard(line)
        return ending
    is_over = anyio.current_time() - began_s >= limit.total_seconds()
    if process.returncode == -signal.SIGALRM and is_over:  # our alarm, while our loop was blocked
        return TimedOut(limit)
    raise HandlerDied(f"the process of the handler {_how(process.returncode)}")


async def _ask(process: Process, text: bytes) -> bytes | None:
    """Send the job and wait for the answer; None when the process has ended without one."""
    assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101 - pipes
    answers, line = BufferedByteReceiveStream(process.stdout), None
    async with anyio.create_task_group() as tasks:

        async def end_with_it() -> None:
            await _ended(process)
            tasks.cancel_scope.deadline = anyio.current_time() + _DRAIN_S

        tasks.start_soon(end_with_it)
        with suppress(anyio.BrokenResourceError):
            await process.stdin.send(text)
        try:
            line = await answers.receive_until(b"\n", _ANSWER_BYTES_MAX)
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound):
            await _ended(process)
        tasks.cancel_scope.cancel()
    return line


async def _ended(process: Process) -> None:
    """Wait for its end, and not for those whom it gave its pipes to, as some asyncio's `wait` does."""
    while process.returncode is None:
        await anyio.sleep(_LOOK_EVERY_S)


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code} and no answer"


def order(claim: Claim, limit: timedelta) -> bytes:
    """Write the line that tells a process what to run, and how long at most."""
    plain = {**claim._asdict(), "waited": claim.waited.total_seconds()}
    return json.dumps([limit.total_seconds(), plain]).encode() + b"\n"


def ordered(line: bytes) -> tuple[Claim, float]:
    """Read what `order` wrote."""
    limit_s, plain = json.loads(line)
    return Claim(**{**plain, "waited": timedelta(seconds=plain["waited"])}), limit_s


def answer(ending: Ending, where: str | None = None, no_outcome: str | None = None) -> bytes:
    """Write an ending as the line that a process answers with: plain words, no objects."""
    said: dict[str, Any] = {"where": where, "no_outcome": no_outcome}
    match ending:
        case Done(result) if result is not None:
            said["result"] = json.loads(result_json(result))
        case Again(after):
            said["again"] = after.total_seconds()
        case GiveUp(reason):
            said["give_up"] = error_text(reason)
        case Raised(error):
            said["raised"] = error_text(error)
            if isinstance(error, PermanentError | TemporaryError):
                said["permanent"] = isinstance(error, PermanentError)
                said["status"] = error.status
            if isinstance(error, TemporaryError) and error.after is not None:
                said["after"] = error.after.total_seconds()
        case _:
            pass
    return json.dumps(said).encode() + b"\n"


def heard(line: bytes) -> tuple[Ending, str | None, str | None]:
    """Read what `answer` wrote: the ending, the line that raised, what was no outcome."""
    said = json.loads(line)
    ending: Ending = Done()
    match said:
        case {"result": result}:
            ending = Done(result)
        case {"again": seconds}:
            ending = Again(timedelta(seconds=seconds))
        case {"give_up": reason}:
            ending = GiveUp(reason)
        case {"raised": text}:
            ending = Raised(_error(text, said))
        case _:
            pass
    return ending, said["where"], said["no_outcome"]


def _error(text: str, said: Mapping[str, Any]) -> Exception:
    """Make an error of the same name and words; what else it held stays in its process."""
    name, _, words = text.partition(": ")
    match said:
        case {"permanent": True, "status": status}:
            return _named(name, PermanentError)(words, status=status)
        case {"permanent": False, "status": status}:
            after = timedelta(seconds=said["after"]) if "after" in said else None
            return _named(name, TemporaryError)(words, status=status, after=after)
        case _:
            return _named(name, Exception)(words)


def _named(name: str, kind: type[Error]) -> type[Error]:
    return type(name, (kind,), {})
