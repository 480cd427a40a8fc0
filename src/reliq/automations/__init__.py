"""
The bundled automations: a site's form, a Telegram bot, GitHub, a heartbeat, alerts, and outgoing webhooks.

They are the default App and the example of one: each is one file with a source, a handler, or
both, and this factory is the one place that puts them together.
"""

from functools import cache

import httpx

from reliq.app import App
from reliq.automations import alert, github, heartbeat, site_form, telegram, webhook
from reliq.automations.outgoing import Outgoing
from reliq.domain.slots import Schedule
from reliq.domain.when import Every
from reliq.settings import Settings


def app(settings: Settings) -> App:
    """Compose the default App; it works only with the settings that `needs` names."""
    # Made on the first call: reading the certificates costs the receiver 0.1 s for nothing.
    http = cache(lambda: httpx.AsyncClient(follow_redirects=False))

    async def close() -> None:
        if http.cache_info().currsize:
            await http().aclose()

    crm = None
    if settings.site_forward_url is not None:
        crm = Outgoing(http=http, url=settings.site_forward_url, what="the CRM")
    bot = telegram.Telegram.of(settings, http)
    return App(
        sources={"site": site_form.SOURCE, "telegram": telegram.SOURCE, "github": github.SOURCE},
        handlers={
            "site.form": site_form.handler(crm),
            "telegram.message": telegram.handler(bot),
            "github.event": github.log_event,
            "heartbeat": heartbeat.beat,
            "alert": alert.handler(bot),
            webhook.KIND: webhook.handler(settings),
        },
        schedules=[Schedule(kind="heartbeat", when=Every(minutes=60))],
        needs=("telegram_token", "alert_chat_id"),
        close=[close],
    )
