"""
A webhook receiver, a Postgres job queue and a worker.

What an App and its handlers need; everything else is reached through the `reliq` command.
"""

from reliq.app import App, Handler, Source
from reliq.domain.event import Delivery
from reliq.domain.http import check
from reliq.domain.job import DuplicateOf, Inserted, NewJob, State
from reliq.domain.keep import Keep
from reliq.domain.outcome import Again, Done, GiveUp, Outcome
from reliq.domain.policy import DEFAULT, MAIL, REPORT, URGENT, WEBHOOK, Policy
from reliq.domain.retry import RetryPolicy, RetryTable
from reliq.domain.signature import Hmac, Token
from reliq.domain.slots import Schedule
from reliq.domain.when import Cron, Daily, Every
from reliq.errors import EffectTaken, PermanentError, TemporaryError
from reliq.job import Effect, Job
from reliq.postgres.cancel import cancel
from reliq.postgres.enqueue import enqueue, enqueue_many
from reliq.postgres.enqueuer import Enqueuer, open_enqueuer
from reliq.sealing import Sealing

__all__ = [
    "DEFAULT",
    "MAIL",
    "REPORT",
    "URGENT",
    "WEBHOOK",
    "Again",
    "App",
    "Cron",
    "Daily",
    "Delivery",
    "Done",
    "DuplicateOf",
    "Effect",
    "EffectTaken",
    "Enqueuer",
    "Every",
    "GiveUp",
    "Handler",
    "Hmac",
    "Inserted",
    "Job",
    "Keep",
    "NewJob",
    "Outcome",
    "PermanentError",
    "Policy",
    "RetryPolicy",
    "RetryTable",
    "Schedule",
    "Sealing",
    "Source",
    "State",
    "TemporaryError",
    "Token",
    "cancel",
    "check",
    "enqueue",
    "enqueue_many",
    "open_enqueuer",
]
