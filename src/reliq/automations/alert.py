"""
Tell the operator: of a job that died, and of what `watch` found.

The queue makes the alert in the statement that buries the job, once per kind of error and
window of time, and retries it like any job: so this handler sends one message, and raises
where that fails. Where there are two channels each gets a job of its own, so that one that is
down does not hold up the other, and no message is sent twice because of it.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from reliq import enqueue
from reliq.app import ALERT_KIND, Handler
from reliq.automations.outgoing import Outgoing
from reliq.automations.telegram import Telegram
from reliq.domain.fields import check_awaited
from reliq.domain.job import Payload, check_name
from reliq.domain.policy import Policy
from reliq.domain.retry import RetryPolicy
from reliq.errors import ConfigInvalid
from reliq.job import Job

Channel = Callable[[str, str], Awaitable[None]]
"""Sends a text, under a key that is the same whenever it is repeated; raises where it cannot."""

POLICY: Final = Policy(
    retry=RetryPolicy(
        base=timedelta(seconds=5), cap=timedelta(minutes=30), attempts_max=200,
    ),
    time_limit=timedelta(minutes=1),
    priority=0,
)  # fmt: skip
"""A channel may be away over a long weekend: half an hour apart, for more than three days."""


def handlers(channels: Mapping[str, Channel], policy: Policy = POLICY) -> dict[str, Handler]:
    """
    Send by one channel, or share out among several, as kinds `alert.<name>`.

    Raises:
        ValueError: there is no channel, so nobody would be told, or one cannot work.

    """
    if not channels:
        raise ValueError("alert.handlers({}): without a channel alerts count as sent: give one")
    for name, channel in channels.items():
        check_name("alert.handlers: the name of a channel", name)
        check_awaited(f"alert.handlers: the channel {name!r}", channel)
    if len(channels) == 1:
        [channel] = channels.values()
        return {ALERT_KIND: Handler(partial(_send, channel), policy=policy)}
    return {
        ALERT_KIND: Handler(partial(_share, list(channels)), policy=policy),
        **{
            f"{ALERT_KIND}.{name}": Handler(partial(_send, channel), policy=policy)
            for name, channel in channels.items()
        },
    }


def by_telegram(bot: Telegram) -> Channel:
    """
    Send to the chat of the settings.

    Raises:
        ConfigInvalid: they name no bot, or no chat.

    """
    given = {"TELEGRAM_TOKEN": bot.token.get_secret_value(), "ALERT_CHAT_ID": bot.alert_chat_id}
    if missing := [name for name, value in given.items() if not value]:
        raise ConfigInvalid([f"RELIQ_{name} is missing: alerts go by Telegram" for name in missing])

    async def send(text: str, key: str) -> None:
        await bot.send_message(bot.alert_chat_id, text, key=key)

    return send


def by_webhook(outgoing: Outgoing) -> Channel:
    """Post `{"text": …, "key": …}`, which chats with incoming webhooks understand."""

    async def send(text: str, key: str) -> None:
        await outgoing.post({"text": text, "key": key}, key=key)

    return send


async def _send(channel: Channel, job: Job) -> None:
    await channel(text(job.payload), job.key)


async def _share(names: list[str], job: Job) -> None:
    async with job.transaction() as tx:
        for name in names:
            told = {"text": text(job.payload)}
            await enqueue(tx, f"{ALERT_KIND}.{name}", told, key=job.key, priority=0)


def text(payload: Payload) -> str:
    """Say which job died, why, and what to do; the error comes last, for it may be long."""
    if "text" in payload:
        return str(payload["text"])
    job_id = payload["job_id"]
    about = (
        f"reliq: job {job_id} ({payload['kind']}) is dead at attempt {payload['attempt']}: "
        f"{payload['reason']}.\n"
        f"See it with `reliq show {job_id}`, make it anew with `reliq retry {job_id}`.\n"
    )
    if "more" in payload:
        about += (
            f"{payload['more']} other errors were told of in this window of time, and further ones "
            "are not told one by one: see `reliq failed`.\n"
        )
    return f"{about}\n{payload['error']}"
