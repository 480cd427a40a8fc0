"""A place to listen on, taken before anything else starts."""

import os
import socket

from reliq.errors import ConfigInvalid


def listening(host: str, port: int, setting: str) -> socket.socket:
    """
    Listen on an address; port 0 takes any free one.

    Raises:
        ConfigInvalid: somebody else listens there, or it is no address of this machine.

    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise ConfigInvalid(
            [f"{setting}={port} cannot be listened on at {host}: {os.strerror(error.errno or 0)}"]
        ) from error
