"""HTTP within this machine: no TLS, and nothing of the environment's proxies."""

import ssl
from typing import Final

import httpx

_NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Never used, and not made anew for each client, which would read every authority's certificate."""


def open_client(address: str = "", *, timeout_s: float = 2) -> httpx.AsyncClient:
    """Return a client of its own connections, for paths below `address` or whole addresses."""
    return httpx.AsyncClient(
        base_url=address, transport=httpx.AsyncHTTPTransport(verify=_NO_TLS), trust_env=False,
        timeout=timeout_s,
    )  # fmt: skip
