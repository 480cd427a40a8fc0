"""
The bundled automations: what comes in, what goes out, and who is told when something is wrong.

They are the default App and the example of one: each is one file with a source, a handler, or
both, and this factory is the one place that puts them together.
"""

from functools import cache

from reliq.app import App, Handler
from reliq.automations import (
    alert,
    github,
    heartbeat,
    report,
    site_form,
    telegram,
    watch,
    webhook,
)
from reliq.automations.outgoing import Outgoing, client
from reliq.domain.slots import Schedule
from reliq.domain.when import Every
from reliq.settings import Settings


def app(settings: Settings) -> App:
    """Compose the default App; it works only with the settings that `needs` names."""
    # Made on the first call: reading the certificates costs the receiver 0.1 s for nothing.
    http = cache(client)

    async def close() -> None:
        if http.cache_info().currsize:
            await http().aclose()

    crm = None
    if settings.site_forward_url is not None:
        crm = Outgoing(http=http, url=settings.site_forward_url, what="the CRM")
    bot = telegram.Telegram.of(settings, http)
    mails, needs = _mail(settings)
    channels: dict[str, alert.Channel] = {}
    if settings.alert_chat_id is not None or settings.alert_url is None:
        needs += ("telegram_token", "alert_chat_id")
        if not settings.missing(*needs[-2:]):  # else said with everything else that is missing
            channels["telegram"] = alert.by_telegram(bot)
    if settings.alert_url is not None:
        url = settings.alert_url
        channels["webhook"] = alert.by_webhook(Outgoing(http=http, url=url, what="the alert URL"))
    ping = None
    if settings.watch_ping_url is not None:
        ping = Outgoing(http=http, url=settings.watch_ping_url, what="the ping URL")
    schedules = [Schedule(kind="heartbeat", when=Every(minutes=60)), watch.SCHEDULE]
    return App(
        sources={"site": site_form.SOURCE, "telegram": telegram.SOURCE, "github": github.SOURCE},
        handlers={
            "site.form": site_form.handler(crm),
            "telegram.message": telegram.handler(bot),
            "github.event": github.log_event,
            "heartbeat": heartbeat.beat,
            **(alert.handlers(channels) if channels else {}),
            watch.KIND: watch.handler(settings, schedules, ping),
            **mails,
            **report.handlers(report.REPORTS),
            webhook.KIND: webhook.handler(settings),
        },
        schedules=schedules,
        needs=needs,
        close=[close],
    )


def _mail(settings: Settings) -> tuple[dict[str, Handler], tuple[str, ...]]:
    """Return the handler of mails and what it needs; without a server nobody handles them here."""
    if settings.mail_url is None:
        return {}, ()
    needs = ("mail_from", "mail_templates")
    if None in (settings.mail_from, settings.mail_templates):
        return {}, needs  # which is said with everything else that is missing
    from reliq.automations import mail  # noqa: PLC0415 - who sends none need not read so much

    return {mail.KIND: mail.handler(settings)}, needs
