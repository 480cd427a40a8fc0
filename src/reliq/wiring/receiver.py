"""The receiver, put together and served."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import anyio
import structlog
import uvicorn
from starlette.routing import Route
from typing_extensions import override

from reliq.app import App
from reliq.postgres.inbox import GROUP_PATIENCE, PostgresInbox
from reliq.postgres.listen import Bell
from reliq.postgres.reports import PostgresReports
from reliq.receiver.asgi import make_asgi
from reliq.receiver.reports import report_routes
from reliq.settings import Settings
from reliq.wiring.loading import sealing
from reliq.wiring.sockets import listening
from reliq.wiring.stores import database

log = structlog.get_logger()

POOL = 10
"""Connections for single events, and as many for groups, of which two are enough while all is well."""

REPORTS_POOL = 4
"""Connections for reports, so that those who fetch them take none from deliveries."""

DRAIN_S = 10
"""For open requests to be answered after SIGTERM."""


async def serve(settings: Settings, app: App) -> None:
    """
    Receive until told to stop; open requests are answered first.

    Raises:
        ConfigInvalid: the port cannot be had.

    """
    store, place = database(settings), listening(settings.host, settings.port, "RELIQ_PORT")
    bell = Bell(store)
    async with (
        store.pool("reliq receiver", REPORTS_POOL) as read,
        store.pool("reliq receiver", POOL) as pool,
        store.pool("reliq receiver", POOL, lock_timeout=GROUP_PATIENCE) as grouped,
    ):
        inbox = PostgresInbox(
            pool=pool,
            grouped=grouped if settings.planner == "pool" else None,  # a pooler keeps no timeout
            deadline=settings.store_deadline,
            key_ttl=settings.keep_keys,
            sealing=sealing(settings, app),
        )
        asgi = make_asgi(
            app,
            secrets={name: [_secret(settings, name)] for name in app.sources},
            inbox=inbox,
            body_max=settings.body_max,
            bell=bell.ring,
            more=_report_routes(settings, PostgresReports(read)),
        )
        server = _Server(
            uvicorn.Config(
                asgi, log_config=None, access_log=False, lifespan="off", server_header=False,
                proxy_headers=False, ws="none", timeout_graceful_shutdown=DRAIN_S,
            )
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bell.run)
            tasks.start_soon(server.heed_signals)
            log.info("receiver.started", host=settings.host, port=place.getsockname()[1])
            if (reason := await inbox.why_not_ready()) is not None:
                log.warning("receiver.not_ready", reason=reason)
            await server.serve(sockets=[place])
            tasks.cancel_scope.cancel()
    for close in app.close:
        await close()
    log.info("receiver.stopped")


class _Server(uvicorn.Server):
    """A server whose end by a signal is a good end: uvicorn's own raises the signal again."""

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        yield

    async def heed_signals(self) -> None:
        """Answer what is open at the first signal, nothing more at the second."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                self.force_exit = self.should_exit
                self.should_exit = True


def _report_routes(settings: Settings, reports: PostgresReports) -> Sequence[Route]:
    secret = settings.report_secret
    return () if secret is None else report_routes(reports, secret.get_secret_value().encode())


def _secret(settings: Settings, source: str) -> bytes:
    return (settings.secret(source) or "").encode()
