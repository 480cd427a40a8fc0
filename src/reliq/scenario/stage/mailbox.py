"""
The mail server of the jobs: SMTP with a list of rules, a log, and bad manners.

What it takes goes nowhere. `receipt.txt`, the only template there is, has the key of a mail for its
subject, so that mails can be told apart by what every recipient sees.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from itertools import count
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from reliq.scenario.model.system import Dispatch
from reliq.scenario.recorder import Recorder
from reliq.servers.loopback import HOST

TEMPLATES: Final = Path(__file__).with_name("mails")
"""The folder with the template."""

_LINE_MAX: Final = 1_000
_MAIL_MAX: Final = 1_048_576
_CODES: Final = {"accept": 250, "later": 451, "refuse": 554}
_GONE: Final = (
    anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError,
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Mailbox:
    """Answers texts by the first rule that is not used up, and takes them when all are."""

    port: int
    rules: Sequence[Dispatch]
    recorder: Recorder
    _mails: Iterator[int] = field(default_factory=lambda: count(1))
    _used: Counter[int] = field(default_factory=Counter)

    @property
    def url(self) -> str:
        """The address that workers are given."""
        return f"smtp+plain://{HOST}:{self.port}"

    async def serve(self, stream: SocketStream) -> None:
        """Take the mails of one connection until its client leaves."""
        async with stream:
            with suppress(*_GONE):
                await stream.send(b"220 drill\r\n")
                await self._talk(stream, BufferedByteReceiveStream(stream))

    async def _talk(self, stream: SocketStream, heard: BufferedByteReceiveStream) -> None:
        line = await heard.receive_until(b"\r\n", _LINE_MAX)
        while not line.startswith(b"QUIT"):
            if line.startswith(b"DATA"):
                await stream.send(b"354 go on\r\n")
                text = await heard.receive_until(b"\r\n.\r\n", _MAIL_MAX)
                line = await self._take(stream, heard, text)
            else:
                await stream.send(b"250 OK\r\n")
                line = await heard.receive_until(b"\r\n", _LINE_MAX)
        await stream.send(b"221 bye\r\n")

    async def _take(
        self, stream: SocketStream, heard: BufferedByteReceiveStream, text: bytes
    ) -> bytes:
        """
        Log a mail, answer it, and log how; return the client's next command.

        That it has heard the answer is known from that command, and only then.

        Raises:
            EndOfStream: there is none (or another of anyio's errors).

        """
        head = message_from_bytes(text, policy=policy.default)
        about: dict[str, Any] = {"mail": next(self._mails), "key": str(head["Subject"])}
        self.recorder.record(
            "mail", "message", message_id=str(head["Message-ID"]), to=str(head["To"]), **about
        )
        rule, reply = self._choose()
        code = _CODES.get(reply)
        how = "dropped" if code is None else "unheard"
        try:
            if code is None:
                raise anyio.EndOfStream
            await stream.send(f"{code} said the drill\r\n".encode())
            line = await heard.receive_until(b"\r\n", _LINE_MAX)
            how = "heard"
        finally:
            self.recorder.record("mail", "answer", code=code, how=how, rule=rule, **about)
        return line

    def _choose(self) -> tuple[int, str]:
        for n, rule in enumerate(self.rules):
            if rule.times is None or self._used[n] < rule.times:
                self._used[n] += 1
                return n, rule.reply
        return -1, "accept"


@asynccontextmanager
async def open_mailbox(rules: Sequence[Dispatch], recorder: Recorder) -> AsyncIterator[Mailbox]:
    """Serve for as long as the block runs."""
    listener = await anyio.create_tcp_listener(local_host=HOST)
    port: int = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
    mailbox = Mailbox(port=port, rules=rules, recorder=recorder)
    async with listener, anyio.create_task_group() as serving:
        serving.start_soon(listener.serve, mailbox.serve)
        yield mailbox
        serving.cancel_scope.cancel()
