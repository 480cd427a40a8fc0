"""A Postgres of our own obeys, keeps its data and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import anyio
import asyncpg
import pytest

from reliq.errors import ServerFailed
from reliq.servers import make_server, open_server
from reliq.servers.account import unprivileged
from reliq.servers.binaries import BinaryServer
from reliq.servers.processes import processes
from reliq.servers.programs import embedded_programs, within_reach
from tests.fixtures.postgres import IMAGE, PROVIDER, ask, fetch_value

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has another account to run as")

PROGRAM = """
import signal, sys
from pathlib import Path
from reliq.servers import open_server
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
with open_server("embedded", folder=Path(sys.argv[1]), parameters={"cluster_name": sys.argv[2]}):
    print("started", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def spare():
    with open_server(PROVIDER, image=IMAGE) as server:
        yield server


@pytest.fixture
def own(spare):
    """A server that this test may harm."""
    yield spare
    spare.restart()


@pytest.fixture
def place():
    """A folder that any account can reach; pytest's own are closed when root runs it."""
    with tempfile.TemporaryDirectory(prefix="reliq-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def closed(place):
    """A folder that only we can enter."""
    folder = place / "closed"
    folder.mkdir(mode=0o700)
    return folder


START = """
import sys
from pathlib import Path
from reliq.servers.binaries import BinaryServer
BinaryServer(Path(sys.argv[1]), folder=Path(sys.argv[2])).start()
"""


def fake_programs(place, *, initdb):
    """Make programs of which initdb does what the script says, and no more."""
    folder = place / "bin"
    folder.mkdir()
    for name, script in {"initdb": initdb, "postgres": "exit 0"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def stranger():
    """A process of the account that Postgres runs as: of others' Postgres is not afraid."""
    with Path(os.devnull).open("wb") as log:
        process = unprivileged().spawn("/bin/sleep", "60", cwd=Path("/"), log=log)
    yield process.pid
    process.kill()
    process.wait()


def commands(word):
    """The command lines in which `word` occurs, of all processes."""
    command = ["/bin/ps", "-axwwo", "args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if word in line]


def test_committed_data_survive_a_crash_at_the_same_address(own):
    ask(own.dsn(), "create table crashed as select 1 as number")

    own.crash()
    with pytest.raises(OSError, match="Connect"):
        ask(own.dsn(), "select 1")
    own.start()

    assert ask(own.dsn(), "select number from crashed") == 1


def test_data_survive_a_restart_at_the_same_address(own):
    ask(own.dsn(), "create table restarted as select 1 as number")

    own.restart()

    assert ask(own.dsn(), "select number from restarted") == 1


@pytest.mark.anyio
async def test_a_frozen_server_answers_once_it_is_thawed(own):
    answers = []

    async def query():
        answers.append(await connection.fetchval("select 1"))

    async def knock():
        """Nobody answers: the kernel takes the connection, and the server never speaks."""
        with pytest.raises(TimeoutError):
            await asyncpg.connect(own.dsn(), timeout=0.3)

    connection = await asyncpg.connect(own.dsn())
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            own.freeze()
            tasks.start_soon(query)
            await knock()
            while_frozen = list(answers)
            own.thaw()
    await connection.close()

    assert (while_frozen, answers) == ([], [1])


@pytest.mark.timeout(20)  # less than the patience after which a stop becomes a kill
def test_a_frozen_server_stops_and_starts(own):
    own.freeze()

    own.stop()
    own.start()

    assert ask(own.dsn(), "select 1") == 1


@pytest.mark.parametrize("harm", ["crash", "freeze", "thaw"])
def test_a_server_that_is_down_cannot_be_harmed(harm):
    server = make_server(PROVIDER, image=IMAGE)

    with closing(server), pytest.raises(ServerFailed, match="not running"):
        getattr(server, harm)()


def test_a_running_server_is_not_started_twice(own):
    with pytest.raises(ServerFailed, match="running already"):
        own.start()


def test_two_servers_run_side_by_side(own):
    with open_server(PROVIDER, image=IMAGE) as other:
        ask(own.dsn(), "create table mine ()")

        assert own.port != other.port
        assert ask(other.dsn(), "select to_regclass('mine')") is None


def test_parameters_arrive_and_a_bad_one_is_quoted():
    with open_server("embedded", parameters={"work_mem": "5MB"}) as server:
        assert ask(server.dsn(), "show work_mem") == "5MB"

    server = make_server("embedded", parameters={"nonsense": "1"})
    with closing(server), pytest.raises(ServerFailed, match='parameter "nonsense"'):
        server.start()


def test_auto_takes_the_binaries_where_the_image_is_not_at_hand():
    with closing(make_server("auto", image="no-such-image:at-all")) as server:
        assert isinstance(server, BinaryServer)


def test_a_named_folder_keeps_its_data_between_servers(place):
    with open_server("embedded", folder=place / "data") as server:
        ask(server.dsn(), "create table kept as select 1 as number")

    with open_server("embedded", folder=place / "data") as server:
        assert server.data_dir == place / "data"
        assert ask(server.dsn(), "select number from kept") == 1


@pytest.mark.anyio
async def test_an_initdb_that_was_cut_short_spoils_nothing(place):
    programs = fake_programs(place, initdb="echo $$ >PG_VERSION; exec sleep 60")
    data = place / "data"
    command = [sys.executable, "-c", START, str(programs), str(data)]
    with anyio.fail_after(30):
        async with await anyio.open_process(command) as parent:
            while not (half := [path for path in data.glob("cluster*/*") if path.stat().st_size]):
                await anyio.sleep(0.02)
            parent.kill()
    os.kill(int(half[0].read_text()), signal.SIGKILL)

    with open_server("embedded", folder=data) as server:
        assert await fetch_value(server.dsn(), "select 1") == 1

    assert not half[0].exists()


def test_an_initdb_that_fails_is_quoted_and_leaves_no_cluster(place):
    programs = fake_programs(place, initdb="touch PG_VERSION; echo disk on fire; exit 1")

    server = BinaryServer(programs, folder=place / "data")
    with closing(server), pytest.raises(ServerFailed, match="disk on fire"):
        server.start()

    assert not list((place / "data").glob("cluster*/"))


def test_a_folder_with_a_live_server_is_refused(place):
    second = make_server("embedded", folder=place)
    with open_server("embedded", folder=place) as first:
        with closing(second), pytest.raises(ServerFailed, match=f"runs on .* port {first.port}"):
            second.start()

        assert ask(first.dsn(), "select 1") == 1


def test_a_lock_file_whose_number_went_to_a_stranger_is_put_aside(place, stranger):
    with open_server("embedded", folder=place) as server:
        lock = place / "cluster/postmaster.pid"
        _, *rest = lock.read_text().splitlines()
        server.crash()
        lock.write_text("\n".join([str(stranger), *rest]) + "\n")

        server.start()

        assert ask(server.dsn(), "select 1") == 1


@as_root
def test_data_move_where_the_account_can_reach_them_and_stay_there(closed, place, monkeypatch):
    monkeypatch.setattr("reliq.servers.cluster.STATE", place / "state")

    with open_server("embedded", folder=closed / "data") as server:
        ask(server.dsn(), "create table kept as select 1 as number")
        first = server.data_dir
    with open_server("embedded", folder=closed / "data") as server:
        number = ask(server.dsn(), "select number from kept")

    assert (first.parent, server.data_dir, number) == (place / "state", first, 1)
    assert not (closed / "data").exists()


@as_root
def test_a_strict_umask_does_not_lock_the_account_out(place, monkeypatch):
    monkeypatch.setattr("reliq.servers.cluster.STATE", place / "state")

    before = os.umask(0o077)
    try:
        server = make_server("embedded", folder=place / "new/data")
    finally:
        os.umask(before)

    assert unprivileged().may_enter(server.data_dir)


@as_root
def test_programs_out_of_reach_are_copied_once_even_by_two_at_a_time(closed, place, monkeypatch):
    monkeypatch.setattr("reliq.servers.programs.CACHE", place / "cache")
    package = embedded_programs().parents[1]
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.with_name(name), closed / name, symlinks=True)
    found = []

    def reach():
        found.append(within_reach(closed / package.name / "pginstall/bin", unprivileged()))

    threads = [threading.Thread(target=reach) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(list((place / "cache").iterdir())) == 1
    assert found[0] == found[1]
    assert unprivileged().run(found[0] / "initdb", "--version").returncode == 0


def test_nothing_is_left_after_a_close():
    with open_server("embedded", parameters={"cluster_name": "left-behind"}) as server:
        folder = server.data_dir
        pid = int((folder / "cluster/postmaster.pid").read_text().split()[0])
        during = commands("left-behind"), commands(f"reliq-postgres-guard {pid}")

    assert all(during)
    assert commands("left-behind") == commands(f"reliq-postgres-guard {pid}") == []
    assert not folder.exists()


def test_ctrl_c_in_the_terminal_is_for_us_alone(place):
    with open_server("embedded", folder=place):
        pid = int((place / "cluster/postmaster.pid").read_text().split()[0])

        assert os.getsid(pid) != os.getsid(0)
        assert processes()[pid].parent == os.getpid()


@pytest.mark.anyio
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_a_server_ends_with_the_process_that_started_it(place, end):
    name = f"orphan-{end.name}"
    command = [sys.executable, "-c", PROGRAM, str(place), name]
    with anyio.fail_after(30):
        async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as parent:
            await parent.stdout.receive()
            during = commands(f"postgres: {name}")

            parent.send_signal(end)
            await parent.wait()
            while commands(name):
                await anyio.sleep(0.02)

    assert during
    with open_server("embedded", folder=place) as server:
        assert await fetch_value(server.dsn(), "select 1") == 1
