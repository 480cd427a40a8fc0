"""
Tell the operator of a job that died.

The queue makes the alert in the statement that buries the job, once per kind of error and
window of time, and retries it like any job: so this handler sends one message, and raises
where that fails.
"""

from reliq.app import Handler, Job
from reliq.automations.telegram import Telegram
from reliq.domain.job import Payload


def handler(bot: Telegram) -> Handler:
    """Send one message for each alert."""

    async def send(job: Job) -> None:
        await bot.send_message(bot.alert_chat_id, text(job.payload), key=job.key)

    return Handler(send)


def text(payload: Payload) -> str:
    """Say which job died, why, and what to do; the error comes last, for it may be long."""
    job_id = payload["job_id"]
    return (
        f"reliq: job {job_id} ({payload['kind']}) is dead at attempt {payload['attempt']}: "
        f"{payload['reason']}.\n"
        f"See it with `reliq show {job_id}`, make it anew with `reliq retry {job_id}`.\n\n"
        f"{payload['error']}"
    )
