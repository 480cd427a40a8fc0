"""The bell and those who listen to it, on a real Postgres."""

from contextlib import asynccontextmanager

import anyio
import asyncpg
import pytest
from structlog.testing import capture_logs

from reliq.postgres import listen as listening
from reliq.postgres.listen import CHANNEL, Bell, listen
from reliq.postgres.migrate import migrate
from reliq.postgres.pool import Database
from reliq.servers import open_server
from tests.fixtures.postgres import IMAGE, PROVIDER

pytestmark = pytest.mark.anyio

KILL = (
    "select pg_terminate_backend(pid) from pg_stat_activity "
    "where datname = current_database() and application_name = $1"
)


@asynccontextmanager
async def running():
    """Tasks that end with the block."""
    async with anyio.create_task_group() as tasks:
        yield tasks
        tasks.cancel_scope.cancel()


class Wakes:
    """Counts how often it was woken, and waits for more."""

    def __init__(self):
        self.count, self._changed = 0, anyio.Event()

    def __call__(self):
        self.count += 1
        self._changed.set()
        self._changed = anyio.Event()

    async def reach(self, count):
        with anyio.fail_after(10):
            while self.count < count:
                await self._changed.wait()


@pytest.fixture
async def other(dsn):
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.fixture(scope="module")
def own_server():
    """A server that these tests may do harm to."""
    with open_server(PROVIDER, image=IMAGE, parameters={"fsync": "off"}) as server:
        anyio.run(migrate, server.dsn())
        yield server


async def test_a_listener_is_woken_when_it_begins_and_by_every_bell(dsn):
    async with running() as tasks:
        wakes, bell = Wakes(), Bell(Database(dsn=dsn))
        tasks.start_soon(listen, Database(dsn=dsn), wakes)
        tasks.start_soon(bell.run)

        await wakes.reach(1)
        bell.ring()
        await wakes.reach(2)
        bell.ring()
        await wakes.reach(3)


async def test_a_notification_of_a_cancel_is_told_apart_from_one_of_work(dsn, pool):
    async with running() as tasks:
        wakes, cancels = Wakes(), Wakes()
        tasks.start_soon(listen, Database(dsn=dsn), wakes, cancels)
        await cancels.reach(1)

        await pool.execute("select pg_notify('reliq_wake', 'cancel')")
        await cancels.reach(2)
        await pool.execute("select pg_notify('reliq_wake', '')")
        await wakes.reach(2)

        with pytest.raises(TimeoutError), anyio.fail_after(0.1):
            await cancels.reach(3)


async def test_every_listener_hears_the_bell(dsn):
    async with running() as tasks:
        every, bell = [Wakes() for _ in range(3)], Bell(Database(dsn=dsn))
        for wakes in every:
            tasks.start_soon(listen, Database(dsn=dsn), wakes)
            await wakes.reach(1)
        tasks.start_soon(bell.run)

        bell.ring()

        for wakes in every:
            await wakes.reach(2)


async def test_a_thousand_rings_at_once_are_one_notification(dsn):
    async with running() as tasks:
        wakes, bell = Wakes(), Bell(Database(dsn=dsn))
        tasks.start_soon(listen, Database(dsn=dsn), wakes)
        await wakes.reach(1)
        tasks.start_soon(bell.run)

        for _ in range(1000):
            bell.ring()
        await wakes.reach(2)

        with pytest.raises(TimeoutError), anyio.fail_after(20 * listening.EVERY_S):
            await wakes.reach(3)


async def test_the_bell_waits_a_moment_between_two_notifications(dsn, other):
    async with running() as tasks:
        heard, at = Wakes(), []
        await other.add_listener(CHANNEL, lambda *_: (at.append(anyio.current_time()), heard()))
        bell = Bell(Database(dsn=dsn))
        tasks.start_soon(bell.run)

        for count in range(1, 4):
            bell.ring()
            await heard.reach(count)

        assert at[2] - at[0] >= 2 * listening.EVERY_S


async def test_ringing_costs_nothing_when_the_database_is_away():
    bell = Bell(Database(dsn="postgresql://127.0.0.1:1/none"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bell.run)
        with capture_logs() as logs:
            for _ in range(3):
                bell.ring()
                await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert logs == []


async def test_the_bell_rings_again_after_its_connection_was_cut(dsn, other):
    async with running() as tasks:
        wakes, bell = Wakes(), Bell(Database(dsn=dsn))
        tasks.start_soon(listen, Database(dsn=dsn), wakes)
        await wakes.reach(1)
        tasks.start_soon(bell.run)
        bell.ring()
        await wakes.reach(2)

        assert await other.fetchval(KILL, "reliq bell")
        bell.ring()

        await wakes.reach(3)


async def test_a_listener_that_was_cut_off_listens_again_is_woken_and_says_so_once(dsn, other):
    async with running() as tasks:
        wakes = Wakes()
        with capture_logs() as logs:
            tasks.start_soon(listen, Database(dsn=dsn), wakes)
            await wakes.reach(1)

            assert await other.fetchval(KILL, "reliq listen")
            await wakes.reach(2)
            await other.execute(f"notify {CHANNEL}")
            await wakes.reach(3)

        assert [log["event"] for log in logs] == ["wakeup.lost"]


async def test_an_outage_is_logged_once_however_long_it_lasts(own_server, monkeypatch):
    async with running() as tasks:
        monkeypatch.setattr(listening, "PING_S", 0.05)
        monkeypatch.setattr(listening, "DEADLINE_S", 0.05)
        wakes, tried = Wakes(), Wakes()

        class Counting(Database):
            async def connect(self, application):
                tried()
                return await super().connect(application)

        with capture_logs() as logs:
            tasks.start_soon(listen, Counting(dsn=own_server.dsn()), wakes)
            await wakes.reach(1)
            own_server.stop()
            await tried.reach(4)
            own_server.start()
            await wakes.reach(2)

        assert [log["event"] for log in logs] == ["wakeup.lost"]


async def test_a_listener_notices_a_server_that_hangs_and_comes_back(own_server, monkeypatch):
    async with running() as tasks:
        monkeypatch.setattr(listening, "PING_S", 0.05)
        monkeypatch.setattr(listening, "DEADLINE_S", 0.05)
        lost, wakes = Wakes(), Wakes()

        def note(_, __, entry):
            lost()
            return entry

        with capture_logs(processors=[note]) as logs:
            tasks.start_soon(listen, Database(dsn=own_server.dsn()), wakes)
            await wakes.reach(1)
            own_server.freeze()
            try:
                await lost.reach(1)
            finally:
                own_server.thaw()
            await wakes.reach(2)

        assert [log["event"] for log in logs] == ["wakeup.lost"]


async def test_a_listener_that_is_stopped_leaves_no_connection(dsn, other):
    wakes = Wakes()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen, Database(dsn=dsn), wakes)
        await wakes.reach(1)
        tasks.cancel_scope.cancel()

    with anyio.fail_after(5):
        while await other.fetchval(
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and application_name = 'reliq listen'"
        ):
            await anyio.sleep(0.01)
