"""
The process of an isolated handler, `python -m reliq.wiring.isolated`; only a worker starts it.

It loads the App as the worker did, runs one handler, answers and ends; see `worker/isolation.py`.
"""

import inspect
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, BinaryIO, Never

import anyio

from reliq import logs
from reliq.domain.job import Claim
from reliq.domain.outcome import Again, Done, Ending, GiveUp, Outcome, Raised, cause
from reliq.errors import ConfigInvalid
from reliq.job import Effect, Job
from reliq.wiring.loading import load_app, loaded
from reliq.worker.isolation import answer, ordered
from reliq.worker.runner import where


def main() -> Never:
    """Take the job from standard input, and answer on what was standard output."""
    ours = os.getpid()
    lifeline, answers = _own_ends()
    claim, limit_s = ordered(lifeline.readline())
    threading.Thread(target=_end_with_the_worker, args=[lifeline], daemon=True).start()
    for signum in (signal.SIGTERM, signal.SIGINT):  # meant for the worker, which knows its grace
        signal.signal(signum, lambda *_: None)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends us also where no other thread may run
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    ending, place, no_outcome = _run(claim)
    sys.stdout.flush()
    if os.getpid() == ours:  # and not one that the handler forked, and that came back here
        answers.write(answer(ending, place, no_outcome))
        answers.flush()
    os._exit(0)


def _own_ends() -> tuple[BinaryIO, BinaryIO]:
    """Keep both pipes to ourselves: what a handler prints goes where the log goes."""
    lifeline, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return lifeline, answers


def _end_with_the_worker(lifeline: BinaryIO) -> None:
    lifeline.read()
    os.killpg(0, signal.SIGKILL)


def _run(claim: Claim) -> tuple[Ending, str | None, str | None]:
    try:
        settings = loaded()
        logs.configure(settings.log)
        app = load_app(settings)
        if claim.kind not in app.handlers:
            raise ConfigInvalid(  # noqa: TRY301 - an ending like any other
                [
                    f"RELIQ_APP={settings.app} has no handler of kind {claim.kind}: name the App there"
                ]
            )
        handler = app.handler(claim.kind)
        said: object = handler.run(Job.of(claim, _no_transaction, _no_once, handler.model))
        if inspect.isawaitable(said):
            said = anyio.run(_awaited, said)
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an ending
        return Raised(cause(error)), where(error), None
    if isinstance(said, Done | Again | GiveUp):
        return said, None, None
    return Done(), None, None if said is None else type(said).__name__


async def _awaited(said: Awaitable[Outcome | None]) -> Outcome | None:
    return await said


def _no_transaction(_: Sequence[str]) -> AbstractAsyncContextManager[Any]:
    raise RuntimeError("an isolated handler has no job.transaction(): its process settles no job")


async def _no_once(_: str) -> Effect:
    raise RuntimeError("an isolated handler has no job.once(): its process holds no lease")


if __name__ == "__main__":
    main()
