"""Postgres as processes of this machine, from `initdb` and `postgres` in some folder."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from reliq.errors import ServerFailed
from reliq.servers.account import Account, unprivileged
from reliq.servers.cluster import (
    DATABASE,
    SUPERUSER,
    data_folder,
    prepare_cluster,
    read_lock_file,
)
from reliq.servers.loopback import HOST, free_port
from reliq.servers.processes import Guard, await_gone, children_of, halt, send
from reliq.servers.programs import within_reach

START_S: Final = 60.0
STOP_S: Final = 30.0

_PAUSE_S: Final = 0.01
_TAIL_LINES: Final = 12


class BinaryServer:
    """
    A PostgresServer from the programs in one folder (wheel or system).

    It listens on TCP at the loopback address only and trusts whoever connects: for development
    and tests, on a machine whose users trust each other. It ends when this process ends, also
    by SIGKILL (see `Guard`), then without a checkpoint: the next start recovers.
    """

    def __init__(
        self,
        programs: Path,
        *,
        folder: Path | None = None,
        port: int | None = None,
        parameters: Mapping[str, str] | None = None,
        start_s: float = START_S,
    ) -> None:
        self._programs = programs
        self._account = unprivileged()
        self._is_temporary = folder is None
        self._folder = _place(folder, self._account)
        self._port = port or free_port()
        self._parameters = dict(parameters or {})
        self._start_s = start_s
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._has_log = False

    @property
    def port(self) -> int:
        """The port, the same for the life of the object."""
        return self._port

    @property
    def data_dir(self) -> Path:
        """The folder in use; not the one wanted, where Postgres's account cannot reach that."""
        return self._folder

    @property
    def log_path(self) -> Path:
        """What the server said since this object first started it."""
        return self._folder / "postgres.log"

    def dsn(self, database: str = DATABASE) -> str:
        """Return the address of a database."""
        return f"postgresql://{SUPERUSER}@{HOST}:{self._port}/{database}"

    def log(self) -> bytes:
        """Return what the server said since this object first started it."""
        return self.log_path.read_bytes() if self._has_log else b""

    def start(self) -> None:
        """Start, on new data or on those of last time; see PostgresServer."""
        if self._live():
            raise ServerFailed(f"Postgres on port {self._port} is running already")
        self._forget()
        try:
            programs = within_reach(self._programs, self._account)
            cluster = prepare_cluster(self._folder, programs, self._account)
            self._launch(programs, cluster)
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerFailed(f"Postgres did not start in {self._folder}: {error}") from error

    def stop(self) -> None:
        """Stop in good order; one that does not end within STOP_S seconds is killed."""
        if postmaster := self._live():
            send(signal.SIGINT, [postmaster.pid])  # fast shutdown
            send(signal.SIGCONT, [*children_of(postmaster.pid), postmaster.pid])  # if frozen
            try:
                postmaster.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._kill()
        self._forget()

    def crash(self) -> None:
        """Kill the postmaster and all its children at one moment; they are gone on return."""
        self._running_pid()
        self._kill()
        self._forget()

    def freeze(self) -> None:
        """Halt the postmaster and all its children."""
        pid = self._running_pid()
        halt([pid])
        halt(children_of(pid))

    def thaw(self) -> None:
        """Let the postmaster and its children go on."""
        pid = self._running_pid()
        send(signal.SIGCONT, [*children_of(pid), pid])

    def restart(self) -> None:
        """Stop and start again, on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop; delete the data if no folder was named."""
        self.stop()
        if self._is_temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _launch(self, programs: Path, cluster: Path) -> None:
        settings = {"unix_socket_directories": ""} | self._parameters
        settings |= {"listen_addresses": HOST, "port": str(self._port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self.log_path.open("ab" if self._has_log else "wb") as log:
            self._has_log = True
            said = log.tell()
            self._postmaster = self._account.spawn(
                programs / "postgres", "-D", cluster, *options, cwd=cluster, log=log
            )
        try:
            self._guard = Guard(self._postmaster.pid)
            self._await_ready(self._postmaster, cluster, said)
        except BaseException:
            self._kill()
            self._forget()
            raise

    def _await_ready(self, postmaster: subprocess.Popen[bytes], cluster: Path, said: int) -> None:
        # Without a client: a postmaster writes into its lock file when it is ready (pg_ctl waits
        # for the same word). A lock file from before a crash has another pid.
        until = time.monotonic() + self._start_s
        while True:
            lock = read_lock_file(cluster)
            if lock and (lock.pid, lock.status) == (postmaster.pid, "ready"):
                return
            if postmaster.poll() is not None or time.monotonic() > until:
                break
            time.sleep(_PAUSE_S)
        words = self.log_path.read_bytes()[said:].decode(errors="replace").splitlines()
        code = postmaster.returncode
        end = f"was not ready in {self._start_s:g} s" if code is None else f"ended with code {code}"
        raise ServerFailed(
            f"Postgres on port {self._port} {end}. Its last words, from {self.log_path}:\n"
            + "\n".join(words[-_TAIL_LINES:])
        )

    def _live(self) -> subprocess.Popen[bytes] | None:
        if self._postmaster is not None and self._postmaster.poll() is None:
            return self._postmaster
        return None

    def _running_pid(self) -> int:
        if postmaster := self._live():
            return postmaster.pid
        raise ServerFailed(f"Postgres on port {self._port} is not running")

    def _kill(self) -> None:
        if postmaster := self._live():
            halt([postmaster.pid])
            children = children_of(postmaster.pid)
            send(signal.SIGKILL, [*children, postmaster.pid])
            postmaster.wait()
            await_gone(children)

    def _forget(self) -> None:
        if self._guard is not None:
            self._guard.release()
        self._guard = self._postmaster = None


def _place(folder: Path | None, account: Account) -> Path:
    try:
        if folder is not None:
            return data_folder(folder, account)
        wanted = Path(tempfile.mkdtemp(prefix="reliq-"))
        wanted.chmod(0o755)
        place = data_folder(wanted, account)
        if place != wanted.resolve():
            wanted.rmdir()
    except OSError as error:
        raise ServerFailed(f"no folder for the data: {error}") from error
    return place
