"""
A mail server's address, and what its refusals mean for the job that asked.

| address                              | speaks                                               |
|--------------------------------------|------------------------------------------------------|
| `smtp://user:password@host:587`      | STARTTLS, or not at all                              |
| `smtps://user:password@host:465`     | TLS from the first byte                              |
| `smtp+plain://host:25`               | in clear; a password only to the machine's own address |

A 4xx is temporary. A 5xx is permanent where it is about the recipient or the text; of the sender and
of the password it is the operator's to mend, so the job tries again.
"""

import re
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import unquote

Security = Literal["starttls", "tls", "plain"]

_SCHEMES: Final[dict[str, tuple[Security, int]]] = {
    "smtp": ("starttls", 587), "smtps": ("tls", 465), "smtp+plain": ("plain", 25),
}  # fmt: skip
_ADDRESS: Final = re.compile(
    r"(smtp|smtps|smtp\+plain)://(?:([^@/?#:\s\[\]]+):([^@/?#\s\[\]]+)@)?"
    r"([\w.-]+|\[[0-9a-fA-F:.]+\])(?::(\d{1,5}))?/?",
    re.ASCII,
)
_OWN: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PORT_MAX: Final = 65_535

_AUTH: Final = frozenset({530, 534, 535, 538})
"""Answers about who we are, wherever they come: authentication is missing, too weak or wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """Where mails are handed in, how, and as whom; without a user nobody is asked."""

    host: str
    port: int
    security: Security
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """How errors call it: who runs it knows it by that, and no password is in it."""
        return f"the mail server {self.host}:{self.port}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The password, and what AUTH PLAIN and AUTH LOGIN make of it and of the user."""
        if self.user is None or self.password is None:
            return ()
        told = (f"\0{self.user}\0{self.password}", self.user, self.password)
        encoded = (b64encode(each.encode("utf-8", "surrogatepass")).decode() for each in told)
        return (self.password, *(each.rstrip("=") for each in encoded))


def read_mail_url(url: str) -> MailServer:
    """
    Read the address of a mail server.

    Raises:
        ValueError: it is written wrong; the message quotes nothing of it.

    """
    found = _ADDRESS.fullmatch(url)
    port = 0 if found is None else int(found[5] or _SCHEMES[found[1]][1])
    if found is None or not 0 < port <= _PORT_MAX:
        raise ValueError(
            "write it as smtp://user:password@host:587 (STARTTLS), smtps://user:password@host:465 (TLS) "
            "or smtp+plain://host:25, the characters / ? # @ : [ ] % of user and password as "
            "%2F %3F %23 %40 %3A %5B %5D %25"
        )
    security, host = _SCHEMES[found[1]][0], found[4].strip("[]")
    if security == "plain" and found[3] is not None and host not in _OWN:
        raise ValueError("a password goes over TLS: write smtp:// or smtps://, or leave it away")
    user, password = (None if part is None else unquote(part) for part in (found[2], found[3]))
    return MailServer(host=host, port=port, security=security, user=user, password=password)


def is_permanent(code: int) -> bool:
    """Tell whether a refusal of a recipient or a text is final."""
    return 500 <= code < 600 and code not in _AUTH  # noqa: PLR2004 - SMTP's own


def is_refusal(code: int) -> bool:
    """Tell whether an answer says for certain that the mail was not taken."""
    return 400 <= code < 600  # noqa: PLR2004 - SMTP's own
