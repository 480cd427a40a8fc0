"""
A Telegram bot: its updates come in as a webhook, and `Telegram` speaks for it.

The webhook is registered with a secret token, which Telegram sends along in a header: it shows
who sends, but signs nothing. Updates are repeated until they get a 2xx.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import httpx
import structlog
from pydantic import SecretStr

from reliq.app import Handler, Source
from reliq.automations.outgoing import Outgoing
from reliq.domain.event import Delivery
from reliq.domain.job import NewJob
from reliq.domain.signature import TELEGRAM
from reliq.domain.text import storable
from reliq.errors import ReliqError
from reliq.job import Job
from reliq.settings import Settings

TEXT_MAX: Final = 4096
"""Length of a message, in the units of UTF-16, in which Telegram counts."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Telegram:
    """
    One bot. Its token stands in the address of every call and in no error, log or repr.

    `timeout` bounds a whole call; `alert_chat_id` is where `alert` sends to.
    """

    http: Callable[[], httpx.AsyncClient] = field(repr=False)
    api: str
    token: SecretStr
    timeout: timedelta
    alert_chat_id: str | int

    @classmethod
    def of(cls, settings: Settings, http: Callable[[], httpx.AsyncClient]) -> "Telegram":
        """Make the bot of the settings; without a token every call of it fails."""
        return cls(
            http=http,
            api=settings.telegram_api,
            token=settings.telegram_token or SecretStr(""),
            timeout=settings.telegram_timeout,
            alert_chat_id=settings.alert_chat_id or "",
        )

    async def send_message(self, chat_id: str | int, text: str, *, key: str | None = None) -> None:
        """
        Send a text, cut to what one message holds.

        Telegram itself knows no idempotency keys: a message whose answer was lost is sent
        again. The key is for whatever stands in between.

        Raises:
            PermanentError: Telegram refuses it: a wrong token, a chat that is gone.
            TemporaryError: Telegram is away or asks for a pause.

        """
        address = f"{self.api.rstrip('/')}/bot{self.token.get_secret_value()}/sendMessage"
        outgoing = Outgoing(
            http=self.http, url=SecretStr(address), what="Telegram", deadline=self.timeout
        )
        await outgoing.post({"chat_id": chat_id, "text": shortened(text)}, key=key)

    async def alert(self, text: str) -> bool:
        """Tell the operator, now and once: whether it worked is the answer, never an exception."""
        try:
            await self.send_message(self.alert_chat_id, text)
        except Exception as error:  # noqa: BLE001 - who raises an alarm is in trouble already
            reason = str(error) if isinstance(error, ReliqError) else type(error).__name__
            log.error("alert.not_sent", error=reason)  # noqa: TRY400 - no foreign text, no trace
            return False
        return True


def shortened(text: str) -> str:
    """Keep the beginning of a text, as much as a message holds."""
    units = storable(text).encode("utf-16-le")
    if len(units) <= 2 * TEXT_MAX:
        return units.decode("utf-16-le")
    return units[: 2 * (TEXT_MAX - 1)].decode("utf-16-le", "ignore") + "…"


def dedup_key(delivery: Delivery) -> str:
    """Tell updates apart by their number; one bot has one webhook."""
    return str(_update(delivery)["update_id"])


def route(delivery: Delivery) -> Sequence[NewJob]:
    """Make a job of a message with text; edits, photos, joins and the rest need none."""
    match _update(delivery):
        case {"message": {"chat": {"id": int() as chat_id}, "text": str() as text}}:
            return [NewJob(kind="telegram.message", payload={"chat_id": chat_id, "text": text})]
        case _:
            return []


def handler(bot: Telegram) -> Handler:
    """Answer `/ping` with `pong` and nothing else with anything."""

    async def answer(job: Job) -> None:
        words = str(job.payload["text"]).split()
        # In a group a command may name its bot: /ping@reliq_bot.
        if words and words[0].partition("@")[0] == "/ping":
            await bot.send_message(job.payload["chat_id"], "pong", key=job.key)

    return Handler(answer)


def _update(delivery: Delivery) -> Any:
    update = delivery.json()
    if not isinstance(update, dict) or not isinstance(update.get("update_id"), int):
        raise ValueError("an update is a JSON object with a number as its update_id")  # noqa: TRY004
    return update


SOURCE: Final = Source(signature=TELEGRAM, route=route, dedup_key=dedup_key)
