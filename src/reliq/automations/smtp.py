"""
Hand one mail to a server: bounded in time, and silent about the password.

Everything that can be refused without harm comes first: the connection, TLS, who we are, sender and
recipient. Only then is the text given away, and from that moment to the server's answer nobody knows
whether it was taken; so what became of it is a value, `Fate`. aiosmtplib speaks the protocol. Of its errors none
leaves this module, not even as the cause of ours: servers quote what they were told.
"""

import json
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import anyio

from reliq.domain.redact import hide
from reliq.domain.smtp import MailServer, is_permanent, is_refusal
from reliq.domain.text import storable
from reliq.errors import ConfigInvalid, PermanentError, TemporaryError

if TYPE_CHECKING:
    import aiosmtplib

SAID_MAX: Final = 200
"""Characters of a server's answer that are kept."""

READ_MAX: Final = 2_000
"""Characters of it that are looked through for secrets."""

LEAVE_S: Final = 1.0
"""For the farewell, which changes nothing any more."""

_LOGIN: Final = "login"

_PACKAGES: Final = ("aiosmtplib", "jinja2")


def check_packages() -> None:
    """
    Make sure that what mail needs is installed, without the cost of loading it.

    Raises:
        ConfigInvalid: it is not.

    """
    if missing := " and ".join(name for name in _PACKAGES if find_spec(name) is None):
        how = "install reliq with its extra `mail`"
        raise ConfigInvalid([f"RELIQ_MAIL_URL needs the package {missing}: {how}"])


@dataclass(frozen=True, slots=True)
class Taken:
    """The server has taken the mail; `said` is its answer, in which many name it."""

    said: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The server has answered no: the mail was certainly not taken."""

    code: int
    said: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer that could be understood: the mail may have been taken, or not."""

    why: str


Fate = Taken | Refused | Unknown


@dataclass(frozen=True, kw_only=True)
class Smtp:
    """A mail server, and how long one mail may take in all."""

    server: MailServer
    timeout: timedelta
    local_name: str
    """What we call ourselves; to ask the machine for its name can take as long as a name server likes."""

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """Whom to trust, read once: the machine's authorities, or those of SSL_CERT_FILE."""
        return ssl.create_default_context()

    @asynccontextmanager
    async def session(self) -> AsyncIterator["Session"]:
        """
        Connect and log in.

        Raises:
            TemporaryError: the server is away, or does not let us in.

        """
        from aiosmtplib import SMTP  # noqa: PLC0415 - who sends no mail needs none

        server, seconds = self.server, self.timeout.total_seconds()
        client = SMTP(
            hostname=server.host, port=server.port, timeout=None, local_hostname=self.local_name,
            use_tls=server.security == "tls", start_tls=server.security == "starttls",
            tls_context=None if server.security == "plain" else self.tls,
        )  # fmt: skip
        session = Session(client, server, seconds)
        try:
            await session.enter()
            yield session
        finally:
            try:
                if client.is_connected:
                    with anyio.move_on_after(LEAVE_S), suppress(Exception):
                        await client.quit()
            finally:  # also of an attempt that is cancelled
                client.close()


@dataclass(slots=True)
class Session:
    """One connection, and what is left of the time."""

    client: "aiosmtplib.SMTP"
    server: MailServer
    seconds: float
    _left_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._left_s = self.seconds

    async def enter(self) -> None:
        """Connect, over TLS if that is meant, and say who we are; see `Smtp.session`."""
        match await self._ask(self.client.connect()):
            case Refused(code, said):
                raise TemporaryError(f"{self.server.name} answered {code}: {said}", status=code)
            case Unknown(why):
                raise TemporaryError(f"{self.server.name} did not answer ({why})")
            case Taken():
                pass
        if self.server.user is None or self.server.password is None:
            return
        match await self._ask(self.client.login(self.server.user, self.server.password)):
            case Refused(code):  # without its words, which may be ours
                raise TemporaryError(
                    f"{self.server.name} does not let us in ({code}): mend RELIQ_MAIL_URL",
                    status=code,
                )
            case Unknown(why):
                raise TemporaryError(f"{self.server.name} does not let us in ({why})")
            case Taken():
                pass

    async def address(self, sender: str, recipient: str) -> None:
        """
        Name sender and recipient.

        Raises:
            PermanentError: no mail goes to that recipient.
            TemporaryError: not now, or not from that sender.

        """
        for what, ask, whom in (
            ("sender", self.client.mail, sender),
            ("recipient", self.client.rcpt, recipient),
        ):
            match await self._ask(ask(whom)):
                case Refused(code, said):
                    text = f"{self.server.name} refused the {what}: {code} {said}"
                    if what == "recipient" and is_permanent(code):
                        raise PermanentError(text, status=code)
                    raise TemporaryError(text, status=code)
                case Unknown(why):
                    raise TemporaryError(f"{self.server.name} did not answer ({why})")
                case Taken():
                    pass

    async def hand_over(self, content: bytes) -> Fate:
        """Give the text away, and say what became of it."""
        fate = await self._ask(self.client.data(content))
        return (
            Unknown(fate.said) if isinstance(fate, Refused) and not is_refusal(fate.code) else fate
        )

    async def _ask(self, asking: Awaitable[Any]) -> Fate:
        """Wait for an answer within what is left of the time."""
        from aiosmtplib import SMTPException, SMTPResponseException  # noqa: PLC0415

        began_s = anyio.current_time()
        try:
            with anyio.fail_after(self._left_s):
                code, said = await asking
                return Taken(self._excerpt(f"{code} {said}"))
        except SMTPResponseException as error:
            return Refused(error.code, self._excerpt(error.message))
        except TimeoutError:
            why = f"within {self.seconds:g} s"
        except ssl.SSLCertVerificationError as error:
            why = f"its certificate is not trusted: {error.verify_message}"
        except SMTPException as error:
            why = self._excerpt(error.message)
        except OSError as error:
            why = type(error).__name__
        finally:
            self._left_s -= anyio.current_time() - began_s
        self.client.close()  # an answer that comes late would be taken for that of a later word
        return Unknown(why)

    def _excerpt(self, said: str) -> str:
        """Shorten a server's words, without what it was told at the login, should they hold that."""
        told = json.dumps({_LOGIN: self.server.secrets})
        said = hide(said[:READ_MAX], told, frozenset({_LOGIN}))
        said = " ".join(storable(said).split())
        return said if len(said) <= SAID_MAX else f"{said[: SAID_MAX - 1]}…"
