"""The mail server of the demo: it takes what comes, and keeps it in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage

import anyio.to_thread
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from reliq.servers.loopback import HOST, free_port


@dataclass(slots=True)
class Inbox:
    """All mails, in the order in which they came; `url` is what a sender is given."""

    url: str
    mails: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, _: SMTP, __: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's
        """Take a mail; called in the server's thread."""
        content = envelope.content
        text = content if isinstance(content, bytes) else str(content).encode()
        self.mails.append(message_from_bytes(text, policy=policy.default))
        return "250 taken"


@asynccontextmanager
async def open_inbox() -> AsyncIterator[Inbox]:
    """Serve on a loopback port for as long as the block runs."""
    port = free_port()
    inbox = Inbox(f"smtp+plain://{HOST}:{port}")
    server = Controller(inbox, hostname=HOST, port=port)
    await anyio.to_thread.run_sync(server.start)
    try:
        yield inbox
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.stop)
