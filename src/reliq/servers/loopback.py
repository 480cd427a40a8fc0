"""A port of our own on the loopback address."""

import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from random import sample
from typing import Final

from reliq.errors import ServerFailed

HOST: Final = "127.0.0.1"

_PORTS: Final = range(16_384, 32_768)
_TRIES: Final = 200


def free_port() -> int:
    """
    Choose a port that nobody listens on.

    It lies below the ranges from which Linux and macOS take the ports of outgoing connections.
    While a server is down, one from within could be taken by a stranger, or by the very client
    that knocks: TCP lets a connection to its own source port succeed. All others come before
    one comes again: who was given it may not listen yet.
    """
    for port in islice(_shuffled(), _TRIES):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ServerFailed(f"no free port on {HOST} in {_TRIES} tries from {_PORTS[0]}-{_PORTS[-1]}")


@cache
def _shuffled() -> Iterator[int]:
    return cycle(sample(_PORTS, len(_PORTS)))
