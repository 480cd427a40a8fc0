"""A worker, put together and run."""

import asyncio
import math
import os
import random
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial

import anyio
import asyncpg
import structlog

from reliq.app import ALERT_KIND, App
from reliq.domain.job import WorkerName
from reliq.domain.lanes import read_queues
from reliq.errors import SchemaMismatch, StoreUnavailable
from reliq.postgres.endpoints import PostgresEndpoints
from reliq.postgres.listen import listen
from reliq.postgres.migrate import why_not_current
from reliq.postgres.pruner import Pruner
from reliq.postgres.queue import PostgresQueue
from reliq.settings import Settings
from reliq.wiring.loading import sealing
from reliq.wiring.sockets import listening
from reliq.wiring.stores import Stores, database, listening_post
from reliq.worker.availability import Availability
from reliq.worker.beats import Gathering, Noticing, Pruning, Reaping, Scheduling, every
from reliq.worker.cancels import Cancels
from reliq.worker.deadlines import Deadlines
from reliq.worker.hand import Hand
from reliq.worker.keeper import Keeper
from reliq.worker.places import Places
from reliq.worker.run import Worker
from reliq.worker.runner import Runner
from reliq.worker.second_loop import SecondLoop
from reliq.worker.settler import Settler
from reliq.worker.wakeup import Wakeup

log = structlog.get_logger()

OWN_CONNECTIONS = 3
"""A claim and a settle at a time, and one to spare."""

ASIDE_CONNECTIONS = 5
"""For single statements of handlers: effects, and what kinds of reliq's own ask of the tables."""

PRUNE_PAUSE_S = 0.1
"""Between two batches: pruning is never in a hurry."""

SECOND_LOOP_S = 3.0
"""For the second loop to close its connections when the worker stops."""


async def work(settings: Settings, app: App, *, exit_on_db_error: bool = False) -> None:
    """
    Run a worker until it is told to stop.

    Raises:
        ConfigInvalid: the port of its health answers cannot be had.
        SchemaMismatch: the tables are not those this version needs.
        StoreUnavailable: the database was away for longer than the budget, which is nothing
            with `exit_on_db_error`.

    """
    budget_s = 0.0 if exit_on_db_error else settings.db_budget.total_seconds()
    process = _Process(settings, app, Availability(budget_s))
    process.listen()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(process.heed_signals)
        tasks.start_soon(process.watch_budget, tasks.cancel_scope)
        await process.run()
        tasks.cancel_scope.cancel()
    for close in app.close:
        await close()
    process.check_budget()
    log.info("worker.stopped", worker=process.name)


class _Process:
    """One incarnation of a worker, named anew at every start."""

    def __init__(self, settings: Settings, app: App, availability: Availability) -> None:
        self.settings, self.app, self.availability = settings, app, availability
        self.name = WorkerName(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")
        self.database, self.sealing = database(settings), sealing(settings, app)
        self.dice = random.Random()  # noqa: S311 - jitter needs no secrecy
        self.hand = Hand(asyncio.get_running_loop(), settings.lease.total_seconds())
        self.wakeup = Wakeup(poll_s=settings.poll.total_seconds(), dice=self.dice)
        self.stop, self.stop_now = anyio.Event(), anyio.Event()
        self.may_work = threading.Event()
        self.health: socket.socket | None = None

    def listen(self) -> None:
        """Take the port of the health answers, if there is to be one."""
        if (port := self.settings.health_port) is not None:
            self.health = listening(self.settings.host, port, "RELIQ_HEALTH_PORT")

    async def run(self) -> None:
        """Wait for the schema, then work; when it returns, everything is settled or handed back."""
        name, settings = f"reliq {self.name}", self.settings
        async with (
            self.database.pool(name, OWN_CONNECTIONS) as pool,
            self.database.pool(name, min(settings.transactions, settings.concurrency)) as lent,
            self.database.pool(name, min(ASIDE_CONNECTIONS, settings.concurrency)) as aside,
        ):
            second = SecondLoop(self._second)
            async with anyio.create_task_group() as threads:
                threads.start_soon(second.run)
                if await self._await_schema(pool):
                    self.may_work.set()
                    queue = self._queue(pool, lent, aside, self.wakeup.ring)
                    await self._work(self._worker(queue, self._stores(aside)))
                second.stop()
                threads.cancel_scope.deadline = anyio.current_time() + SECOND_LOOP_S

    async def _work(self, worker: Worker) -> None:
        async with anyio.create_task_group() as tasks:
            cancels = Cancels(hand=self.hand, queue=worker.queue)
            tasks.start_soon(cancels.run)
            if (post := listening_post(self.settings)) is not None:
                tasks.start_soon(listen, post, self.wakeup.ring, cancels.ring)
            log.info(
                "worker.started", worker=self.name, concurrency=self.settings.concurrency,
                queues=self.settings.queues or "all",
            )  # fmt: skip
            await worker.run()
            tasks.cancel_scope.cancel()

    async def heed_signals(self) -> None:
        """Stop at the first signal, at once at the second."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                (self.stop_now if self.stop.is_set() else self.stop).set()

    async def watch_budget(self, scope: anyio.CancelScope) -> None:
        """End it all when the database has been away for longer than the budget."""
        while not self.availability.is_spent:
            await anyio.sleep(0.2)
        scope.cancel()

    def check_budget(self) -> None:
        """Raise StoreUnavailable if that is why everything ended."""
        if self.availability.is_spent:
            log.error("database.budget_spent", reason=self.availability.reason)
            raise StoreUnavailable(f"gave up waiting for it: {self.availability.reason}")

    def _queue(
        self,
        pool: asyncpg.Pool,
        lent: asyncpg.Pool,
        aside: asyncpg.Pool,
        ring: Callable[[], None] = lambda: None,
    ) -> PostgresQueue:
        settings = self.settings
        bounds = {
            kind: (self.app.handler(kind).retry or settings.retry).attempts_max
            for kind in self.app.handlers
        }
        return PostgresQueue(
            pool=pool, transactions=lent, effects=aside, worker=self.name, lease=settings.lease,
            attempts_max=bounds, deadline=settings.statement_deadline, key_ttl=settings.keep_keys,
            alerts=ALERT_KIND in bounds, alert_window=settings.alert_window,
            observe=self.availability.saw, ring=ring,
            queues=frozenset(read_queues(settings.queues)),
            sealing=self.sealing,
        )  # fmt: skip

    def _stores(self, pool: asyncpg.Pool) -> Stores:
        alerts = ALERT_KIND in self.app.handlers
        return Stores(endpoints=PostgresEndpoints(pool, self.sealing, alerts=alerts))

    def _worker(self, queue: PostgresQueue, stores: Stores) -> Worker:
        settings, queues = self.settings, read_queues(self.settings.queues)
        rooms = {queue: places for queue, places in queues.items() if places is not None}
        return Worker(
            app=self.app, queue=queue, hand=self.hand, places=Places(settings.concurrency, rooms),
            runner=Runner(
                app=self.app, queue=queue, time_limit=settings.time_limit,
                limiter=anyio.CapacityLimiter(math.inf), sealing=self.sealing, stores=stores,
            ),
            settler=Settler(
                queue=queue, hand=self.hand, retry_s=settings.poll.total_seconds(), dice=self.dice
            ),
            deadlines=Deadlines(hand=self.hand, shortest_s=self._shortest_s()),
            wakeup=self.wakeup, retry=settings.retry, grace=settings.grace, dice=self.dice,
            stop=self.stop, stop_now=self.stop_now, abandon=self._abandon,
        )  # fmt: skip

    def _shortest_s(self) -> float:
        """Return the shortest time that a handler of any kind has."""
        own = [self.app.handler(kind).time_limit for kind in self.app.handlers]
        return min(limit or self.settings.time_limit for limit in [None, *own]).total_seconds()

    def _abandon(self) -> None:
        log.warning("worker.stopped", worker=self.name, abandoned=True)
        sys.stderr.flush()
        os._exit(0)

    async def _second(self, stop: anyio.Event) -> None:
        """Keep leases, reap, schedule and answer: in the second loop, until `stop`."""
        settings, dice = self.settings, random.Random()  # noqa: S311
        async with self.database.pool(f"reliq {self.name} second", 5) as pool:
            queue, lease_s = self._queue(pool, pool, pool), settings.lease.total_seconds()
            keeper = Keeper(hand=self.hand, leases=queue, lease_s=lease_s)
            schedule_s = settings.schedule_every.total_seconds()
            scheduling = Scheduling(app=self.app, slots=queue, beat=settings.schedule_every)
            beats = (
                # Right after an outage the leases of live workers may be over, but not lost yet.
                partial(
                    every, settings.reap_every.total_seconds(), Reaping(reaper=queue),
                    dice=dice, after_outage_s=lease_s / 3,
                ),
                partial(every, schedule_s, scheduling, dice=dice),
                partial(every, schedule_s, Gathering(queue=queue), dice=dice),
                partial(every, schedule_s, Noticing(queue=queue), dice=dice),
                # More often than turns end, so that the next one is taken soon after.
                partial(
                    every, settings.prune_every.total_seconds() / 4, self._pruning(pool), dice=dice
                ),
            )  # fmt: skip
            async with anyio.create_task_group() as tasks:
                if self.health is not None:
                    tasks.start_soon(self._serve_health, self.health)
                while not (self.may_work.is_set() or stop.is_set()):
                    await anyio.sleep(0.05)
                for task in (keeper.run, *beats):
                    tasks.start_soon(task)
                await stop.wait()
                tasks.cancel_scope.cancel()

    def _pruning(self, pool: asyncpg.Pool) -> Pruning:
        settings = self.settings
        pruner = Pruner(pool, settings.keeps(self.app.keep), pause_s=PRUNE_PAUSE_S)
        return Pruning(pruner=pruner, lasts=settings.prune_every if settings.prune else None)

    async def _serve_health(self, place: socket.socket) -> None:
        # An HTTP server costs a quarter of a second of imports, and most workers have none.
        from reliq.worker.health import serve_health  # noqa: PLC0415

        await serve_health(place, self.availability, self.stop)

    async def _await_schema(self, pool: asyncpg.Pool) -> bool:
        """Wait until the tables are the right ones; False when told to stop meanwhile."""
        while not self.stop.is_set():
            try:
                reason = await why_not_current(pool)
            except StoreUnavailable as error:
                self.availability.saw(error)
                await anyio.sleep(self.dice.uniform(0.2, 1.0))
                continue
            self.availability.saw(None)
            if reason is not None:
                raise SchemaMismatch(reason)
            return True
        return False
