"""
Postgres in a container, through testcontainers.

testcontainers is told three things for as long as it starts one, and nothing afterwards:
no Ryuk (its image may not be at hand), how long to wait, and how often to look. It needs no
host override, since the port is bound to our loopback address and we make the DSN ourselves.

Without Ryuk a container outlives us when we are killed before `close`:
`docker rm -f -v $(docker ps -aq --filter label=org.testcontainers=true)`.
"""

import gc
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

from docker.errors import DockerException  # type: ignore[import-untyped]  # ships no types
from testcontainers.community.postgres import PostgresContainer
from testcontainers.core.config import testcontainers_config
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.exceptions import ContainerStartException

from reliq.errors import ServerFailed
from reliq.servers.loopback import HOST, free_port

START_S: Final = 60.0
STOP_S: Final = 30

_NAME: Final = "reliq"
"""Of the user, the password and the first database."""

_PAUSE_S: Final = 0.1
_TAIL_LINES: Final = 12


class ContainerServer:
    """
    A PostgresServer in a container of `image` (one with the official image's interface).

    Its data live in the container's own volume: they survive `crash` and `stop`, not `close`.
    """

    data_dir = None

    def __init__(
        self, image: str, *, port: int | None = None, parameters: Mapping[str, str] | None = None
    ) -> None:
        self._image = image
        self._port = port or free_port()
        self._parameters = dict(parameters or {})
        self._container: PostgresContainer | None = None

    @property
    def port(self) -> int:
        """The port on the host, bound fixed: one that the engine chose would change at restart."""
        return self._port

    def dsn(self, database: str = _NAME) -> str:
        """Return the address of a database."""
        return f"postgresql://{_NAME}:{_NAME}@{HOST}:{self._port}/{database}"

    def log(self) -> bytes:
        """Return what the server said since this object first started it."""
        with suppress(DockerException, ServerFailed, ContainerStartException):
            return bytes(self._inner().logs())
        return b""

    def start(self) -> None:
        """Create the container the first time, start the same one afterwards."""
        with self._obeyed("start"):
            state = self._state()
            if state == "not_started":
                self._create()
            elif state in {"running", "paused"}:
                raise ServerFailed(f"Postgres on port {self._port} is running already")
            else:
                self._inner().start()
                self._await_ready()

    def stop(self) -> None:
        """Stop as `docker stop` does: a fast shutdown, and SIGKILL after STOP_S seconds."""
        with self._obeyed("stop"):
            state = self._state()
            if state == "paused":
                self._inner().unpause()
            if state in {"running", "paused"}:
                self._inner().stop(timeout=STOP_S)

    def crash(self) -> None:
        """Kill the container."""
        with self._obeyed("crash"):
            self._running().kill()
            self._inner().wait(timeout=STOP_S)

    def freeze(self) -> None:
        """Pause the container; a connection attempt is accepted by the engine and hangs."""
        with self._obeyed("freeze"):
            self._running().pause()

    def thaw(self) -> None:
        """Unpause the container."""
        with self._obeyed("thaw"):
            self._running().unpause()

    def restart(self) -> None:
        """Stop and start the same container."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Remove the container and its volume."""
        self.stop()
        if self._container is not None:
            with self._obeyed("close"):
                self._container.stop()
            self._container = None

    def _create(self) -> None:
        container = PostgresContainer(
            self._image, username=_NAME, password=_NAME, dbname=_NAME, driver=None
        )
        # The annotation knows numbers only, the engine takes an address as well.
        container.ports = {"5432/tcp": (HOST, self._port)}  # type: ignore[dict-item]
        container.with_env("POSTGRES_INITDB_ARGS", "--encoding=UTF8 --locale=C --no-sync")
        container.with_command(
            [word for item in self._parameters.items() for word in ("-c", "=".join(item))]
        )
        self._container = container  # also if it does not start: `close` removes it
        with _told_testcontainers():
            container.start()

    def _await_ready(self) -> None:
        probe = ["pg_isready", "--host", HOST, "--username", _NAME]
        until = time.monotonic() + START_S
        while self._inner().exec_run(probe).exit_code != 0:
            if self._state() != "running" or time.monotonic() > until:
                raise TimeoutError(f"not ready within {START_S:g} s, or ended before")
            time.sleep(_PAUSE_S)

    def _inner(self) -> Any:
        if self._container is None:
            raise ServerFailed(f"Postgres on port {self._port} was not started")
        return self._container.get_wrapped_container()

    def _running(self) -> Any:
        if self._state() not in {"running", "paused"}:
            raise ServerFailed(f"Postgres on port {self._port} is not running")
        return self._inner()

    def _state(self) -> str:
        if self._container is None:
            return "not_started"
        self._container.reload()
        return self._container.status

    @contextmanager
    def _obeyed(self, what: str) -> Iterator[None]:
        try:
            yield
        except (DockerException, OSError) as error:
            raise ServerFailed(
                f"could not {what} Postgres in a container of {self._image}: {error}"
                f"\nIts last words:\n{self._last_words()}"
            ) from error

    def _last_words(self) -> str:
        with suppress(DockerException, ServerFailed, ContainerStartException):
            return str(self._inner().logs(tail=_TAIL_LINES).decode(errors="replace"))
        return "(none)"


def is_at_hand(image: str) -> bool:
    """Find out whether an engine answers and has the image already."""
    with warnings.catch_warnings():
        # docker leaves the socket of a call that nobody answered to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            with closing(DockerClient().client) as client:
                client.images.get(image)
        except (DockerException, OSError):
            is_there = False
        else:
            is_there = True
        gc.collect()
    return is_there


@contextmanager
def _told_testcontainers() -> Iterator[None]:
    told = testcontainers_config
    before = (told.ryuk_disabled, told.max_tries, told.sleep_time)
    told.ryuk_disabled, told.max_tries, told.sleep_time = True, int(START_S / _PAUSE_S), _PAUSE_S
    try:
        yield
    finally:
        told.ryuk_disabled, told.max_tries, told.sleep_time = before
