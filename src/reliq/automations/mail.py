"""
Send a mail, at most once for each user, template and event.

The ledger of effects remembers the key of a mail just before its text is given away, and the
server's answer after it. In between nobody but the server can know: an attempt that finds that so
sends the mail again under the same Message-ID, which lets mailboxes drop the second one, or leaves it
to a person. Both are said aloud.

```python
await enqueue(connection, "mail.send", Mail(
    to="ada@example.com", template="receipt", user=7, event="order-42", data={"total": "12.50 €"},
))
```
"""

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass, field
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import Any, Final, Literal

import structlog

from reliq.app import Handler
from reliq.automations.smtp import Fate, Refused, Smtp, Taken, Unknown, check_packages
from reliq.automations.templates import Templates, Text
from reliq.domain.outcome import Done, GiveUp, Outcome
from reliq.domain.policy import MAIL
from reliq.domain.smtp import is_permanent, read_mail_url
from reliq.errors import ConfigInvalid, PermanentError, TemporaryError
from reliq.job import Effect, Job
from reliq.settings import Settings

KIND: Final = "mail.send"

_POLICY: Final = SMTP.clone(cte_type="7bit")
"""For any server: one that takes more than seven bits is not asked for."""

_BREAKS: Final = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")
"""Whatever Python or a mail program takes for the end of a line."""

LINE_MAX: Final = 998
"""Bytes of an address with its name, and of a subject: of a line of a mail (RFC 5322)."""

_DOT_IN_A_NAME: Final = "period in 'phrase'"
"""As the email library names it: `Dr. Ada Lovelace <…>` is an older form, and common."""

ADDRESS_MAX: Final = 254
"""Bytes of an address by itself (RFC 5321)."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """
    One mail to one person: `user`, `template` and `event` say which, and are its key.

    `data` are the values of the template, which also sees `to`, `user` and `event`. `repeat` is a
    person's word to send a mail that was held, although it may have been sent: one copy.
    """

    to: str
    template: str
    user: str | int
    event: str | int
    data: dict[str, Any] = field(default_factory=dict)
    reply_to: str | None = None
    repeat: bool = False

    @property
    def key(self) -> str:
        """What the ledger knows it by; parts cannot run into one another."""
        parts = (str(part) for part in (self.user, self.template, self.event))
        return ":".join(["mail", *(part.replace("%", "%25").replace(":", "%3A") for part in parts)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailer:
    """Where mails are handed in, from whom they are, and what becomes of unknown ones."""

    smtp: Smtp
    sender: Address
    templates: Templates
    unknown: Literal["repeat", "hold"]

    @classmethod
    def of(cls, settings: Settings) -> "Mailer":
        """
        Make the mailer of the settings, of which address, sender and templates are given.

        Raises:
            ConfigInvalid: one of them is missing or wrong, or the extra `mail` is not installed.

        """
        url, sender, folder = settings.mail_url, settings.mail_from, settings.mail_templates
        if url is None or sender is None or folder is None:
            raise ConfigInvalid(settings.missing("mail_url", "mail_from", "mail_templates"))
        check_packages()
        problems, address = [], None
        try:
            address = _address(sender)
        except ValueError:
            problems.append(
                f"RELIQ_MAIL_FROM={sender} is wrong: write one address, Shop <shop@example.com>"
            )
        if not folder.is_dir():
            problems.append(f"RELIQ_MAIL_TEMPLATES={folder} is wrong: there is no such folder")
        if problems or address is None:
            raise ConfigInvalid(problems)
        smtp = Smtp(
            server=read_mail_url(url.get_secret_value()), timeout=settings.mail_timeout,
            local_name=address.domain,
        )  # fmt: skip
        return cls(
            smtp=smtp, sender=address, templates=Templates(folder), unknown=settings.mail_unknown
        )

    async def send(self, job: Job[Mail]) -> Outcome:
        """
        Send the mail of a job, unless it was sent.

        Raises:
            PermanentError: its template, its address or its text is refused.
            TemporaryError: the server is away, says so, or does not let us in.

        """
        mail = job.data
        text = self.templates.fill(
            mail.template, {**mail.data, "to": mail.to, "user": mail.user, "event": mail.event}
        )
        message, content = self._message(mail, text)
        async with self.smtp.session() as session:
            await session.address(self.sender.addr_spec, message["To"].addresses[0].addr_spec)
            effect = await job.once(mail.key)
            if effect.is_done:
                return Done(effect.result)
            message_id = str(message["Message-ID"])
            word = await self._word(job)
            if effect.is_unknown:
                if self.unknown == "hold" and word is None:
                    return GiveUp(held(job.id, message_id))
                log.warning("mail.repeated", job_id=job.id, message_id=message_id)
            fate = await session.hand_over(content)
            return await self._note(job, effect, fate, message_id, text, word=word)

    async def _word(self, job: Job[Mail]) -> Effect | None:
        """
        Take a person's word to send a held mail, if there is one that was not used.

        It is an effect of its own, of this job and of those made of its dead letter: whoever dies
        between the text and its answer, the word is good for one copy.
        """
        if self.unknown != "hold" or not job.data.repeat:
            return None
        word = await job.once(f"{job.data.key}:repeat:{job.key}")
        return word if word.is_new else None

    async def _note(
        self, job: Job[Mail], effect: Effect, fate: Fate, message_id: str, text: Text, *,
        word: Effect | None,
    ) -> Outcome:  # fmt: skip
        """Write down what became of a mail, and end its job accordingly."""
        server = self.smtp.server.name
        match fate:
            case Taken(said):
                result = {
                    "message_id": message_id, "answer": said,
                    "template": job.data.template, "text": text.digest,
                }  # fmt: skip
                await effect.done(result)
                if word is not None:
                    await word.done()
                log.info("mail.sent", job_id=job.id, message_id=message_id)
                return Done(result)
            case Refused(code, said):
                if word is not None:
                    await word.release()
                await effect.release()
                refusal = PermanentError if is_permanent(code) else TemporaryError
                raise refusal(f"{server} refused the text: {code} {said}", status=code)
            case Unknown() if self.unknown == "hold" and job.data.repeat:
                return GiveUp(held(job.id, message_id))  # a person's word is good for one copy
            case Unknown(why):
                raise TemporaryError(
                    f"{server} did not answer when it had the text ({why}): nobody knows "
                    f"whether the mail {message_id} was sent"
                )

    def _message(self, mail: Mail, text: Text) -> tuple[EmailMessage, bytes]:
        """
        Put a mail together; also as it is sent.

        Raises:
            PermanentError: it has no address, or a value breaks out of its header or is too long.

        """
        to, reply_to = _checked("to", mail.to), mail.reply_to
        message = EmailMessage(policy=_POLICY)
        named = hashlib.sha256(mail.key.encode("utf-8", "surrogatepass")).hexdigest()[:40]
        message["Message-ID"] = f"<{named}@{self.sender.domain}>"
        message["Date"] = formatdate()
        message["From"] = self.sender
        message["To"] = to
        if reply_to is not None:
            message["Reply-To"] = _checked("reply_to", reply_to)
        message["Auto-Submitted"] = "auto-generated"
        try:
            if _bytes(text.subject) > LINE_MAX:
                raise ValueError(f"its subject is longer than {LINE_MAX} bytes")  # noqa: TRY301
            message["Subject"] = text.subject
            # The library decodes encoded words, and what was in them breaks out of a folded header.
            if _BREAKS.search(f"{text.subject}{message['Subject']}"):
                raise ValueError("its subject has more than one line")  # noqa: TRY301
            message.set_content(text.plain)
            if text.html is not None:
                message.add_alternative(text.html, subtype="html")
            return message, message.as_bytes()
        except Exception as error:  # noqa: BLE001 - see `_address`
            said = str(error) if isinstance(error, ValueError) else repr(error)
            raise PermanentError(f"the template {mail.template!r} makes no mail: {said}") from None


def handler(settings: Settings) -> Handler:
    """
    Send mails as the settings say.

    Raises:
        ConfigInvalid: they lack something, each in a sentence, or the extra `mail` is not installed.

    """
    return Handler(Mailer.of(settings).send, policy=MAIL, payload=Mail)


def held(job_id: int, message_id: str) -> str:
    """Say to a person what is held, what to look for, and how to go on."""
    anew = (
        """select reliq.enqueue(kind, payload || '{"repeat": true}') from reliq.jobs where id ="""
    )
    return (
        f"nobody knows whether the mail {message_id} was sent: look for it at the provider. If it "
        f"was, `reliq ignore {job_id} --why sent`; if not, this sends it: {anew} {job_id}"
    )


def _checked(name: str, text: str) -> Address:
    try:
        return _address(text)
    except ValueError as error:
        raise PermanentError(f"{name} {error}") from None


def _address(text: str) -> Address:
    """
    Read one address, with or without a name before it.

    Raises:
        ValueError: it is none, or not ASCII, or too long, which is seen before it is read.

    """
    if _bytes(text) > LINE_MAX:
        raise ValueError(f"is longer than {LINE_MAX} bytes, name and all")
    address: Address | None = None
    with suppress(Exception):  # the library stumbles in many ways over what is no address
        header = SMTP.header_factory("To", text)
        [found] = header.addresses
        [again] = SMTP.header_factory("To", str(found)).addresses  # as the mail's header reads it
        defects = [each for each in header.defects if str(each) != _DOT_IN_A_NAME]
        is_whole = found.username and found.domain and not defects
        if is_whole and again.addr_spec == found.addr_spec:
            address = found
    spec = "" if address is None else address.addr_spec
    if address is None or not (spec.isascii() and spec.isprintable()):
        raise ValueError("is no address that a mail can be sent to")
    if len(spec) > ADDRESS_MAX:
        raise ValueError(f"is an address of more than {ADDRESS_MAX} bytes")
    return address


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
