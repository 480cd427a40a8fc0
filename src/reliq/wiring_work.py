"""Worker part of wiring."""

import asyncio
import math
import os
import random
import secrets
import signal
import socket
import sys
from functools import partial

import anyio
import asyncpg
import structlog

from reliq.app import ALERT_KIND, App
from reliq.domain.job import WorkerName
from reliq.errors import SchemaMismatch, StoreError, StoreUnavailable
from reliq.postgres.listen import listen
from reliq.postgres.migrate import why_not_current
from reliq.postgres.pool import Database
from reliq.postgres.queue import PostgresQueue
from reliq.settings import Settings
from reliq.worker.availability import Availability
from reliq.worker.beats import Noticing, Reaping, Scheduling, every
from reliq.worker.hand import Hand
from reliq.worker.health import serve_health
from reliq.worker.keeper import Keeper
from reliq.worker.places import Places
from reliq.worker.run import Worker
from reliq.worker.runner import Runner
from reliq.worker.second_loop import SecondLoop
from reliq.worker.settler import Settler
from reliq.worker.wakeup import Wakeup

log = structlog.get_logger()


def database(settings: Settings) -> Database:
    """Where the database is, from the settings."""
    return Database(
        dsn=settings.dsn,
        deadline_s=settings.statement_deadline.total_seconds(),
        prepared=settings.prepared,
        planner=settings.planner,
    )


async def work(settings: Settings, app: App, *, exit_on_db_error: bool = False) -> None:
    """
    Run a worker until it is told to stop.

    Raises:
        SchemaMismatch: the tables are not those this version needs.
        StoreUnavailable: the database was away for longer than the budget.

    """
    await _WorkerProcess(settings, app, exit_on_db_error=exit_on_db_error).run()


class _WorkerProcess:
    """The parts of one worker, and the tasks that keep them going."""

    def __init__(self, settings: Settings, app: App, *, exit_on_db_error: bool) -> None:
        self.settings, self.app = settings, app
        self.name = WorkerName(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")
        self.database = database(settings)
        budget_s = 0.0 if exit_on_db_error else settings.db_budget.total_seconds()
        self.availability = Availability(budget_s)
        self.dice = random.Random()
        self.hand = Hand(asyncio.get_running_loop(), settings.lease.total_seconds())
        self.stop = anyio.Event()
        self.wakeup = Wakeup(poll_s=settings.poll.total_seconds(), dice=self.dice)

    async def run(self) -> None:
        size = self.settings.concurrency + 3  # one transaction a job; claim, settle, one to spare
        async with self.database.pool(f"reliq {self.name}", size) as pool:
            await self._await_schema(pool)
            worker = self._worker(self._queue(pool))
            second = SecondLoop(self._second)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(second.run)
                tasks.start_soon(listen, self.database, self.wakeup.ring)
                tasks.start_soon(_heed_signals, worker)
                tasks.start_soon(self._watch_budget, tasks.cancel_scope)
                log.info("worker.started", worker=self.name, concurrency=self.settings.concurrency)
                await worker.run()
                second.stop()
                tasks.cancel_scope.cancel()
        self._check_budget()
        log.info("worker.stopped", worker=self.name)

    def _queue(self, pool: asyncpg.Pool) -> PostgresQueue:
        retry = self.settings.retry
        bounds = {
            kind: (self.app.handler(kind).retry or retry).attempts_max for kind in self.app.handlers
        }
        return PostgresQueue(
            pool=pool, worker=self.name, lease=self.settings.lease,
            deadline=self.settings.statement_deadline, attempts_max=bounds,
            alerts=ALERT_KIND in bounds, alert_window=self.settings.alert_window,
            key_ttl=self.settings.keep_keys, observe=self.availability.saw,
        )  # fmt: skip

    def _worker(self, queue: PostgresQueue) -> Worker:
        settings = self.settings
        return Worker(
            app=self.app, queue=queue, hand=self.hand, places=Places(settings.concurrency),
            runner=Runner(
                app=self.app, queue=queue, time_limit=settings.time_limit,
                limiter=anyio.CapacityLimiter(math.inf),
            ),
            settler=Settler(
                queue=queue, hand=self.hand, retry_s=settings.poll.total_seconds(), dice=self.dice
            ),
            wakeup=self.wakeup, retry=settings.retry, grace=settings.grace, dice=self.dice,
            abandon=self._abandon, stop=self.stop,
        )  # fmt: skip

    def _abandon(self) -> None:
        log.warning("worker.stopped", worker=self.name, abandoned=True)
        sys.stderr.flush()
        os._exit(0)

    async def _second(self, stop: anyio.Event) -> None:
        settings, dice = self.settings, random.Random()
        lease_s = settings.lease.total_seconds()
        async with self.database.pool(f"reliq {self.name} second", 4) as pool:
            queue = self._queue(pool)
            keeper = Keeper(hand=self.hand, leases=queue, lease_s=lease_s)
            scheduling = Scheduling(app=self.app, slots=queue, beat=settings.schedule_every)
            beats = (
                (settings.reap_every, Reaping(reaper=queue), lease_s / 3),
                (settings.schedule_every, scheduling, 0.0),
                (settings.schedule_every, Noticing(queue=queue), 0.0),
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keeper.run)
                for beat, act, pause_s in beats:
                    tasks.start_soon(
                        partial(every, beat.total_seconds(), act, dice=dice, after_outage_s=pause_s)
                    )
                if settings.health_port is not None:
                    tasks.start_soon(
                        serve_health,
                        settings.host,
                        settings.health_port,
                        self.availability,
                        self.stop,
                    )
                await stop.wait()
                tasks.cancel_scope.cancel()

    async def _await_schema(self, pool: asyncpg.Pool) -> None:
        while True:
            try:
                reason = await why_not_current(pool)
            except StoreUnavailable as error:
                self.availability.saw(error)
                self._check_budget()
                await anyio.sleep(self.dice.uniform(0.2, 1.0))
                continue
            self.availability.saw(None)
            if reason is not None:
                raise SchemaMismatch(reason)
            return

    async def _watch_budget(self, scope: anyio.CancelScope) -> None:
        while not self.availability.is_spent:
            await anyio.sleep(0.2)
        scope.cancel()

    def _check_budget(self) -> None:
        if self.availability.is_spent:
            log.error("database.budget_spent", reason=self.availability.reason)
            raise StoreUnavailable(f"gave up waiting for the database: {self.availability.reason}")


async def _heed_signals(worker: Worker) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            if worker.stop.is_set():
                worker.stop_now.set()
            worker.stop.set()
