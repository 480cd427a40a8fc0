"""
Sign what we send, as Standard Webhooks has it; `signature.py` is for what we receive.

The receiver computes `HMAC-SHA256(secret, id.timestamp.body)` over the bytes that came, and
compares. While a secret is being changed there is a signature of each, and one that fits is enough.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

PREFIX: Final = "whsec_"
"""What the text of a secret begins with; the rest is base64 of its bytes."""

SECRET_BYTES: Final = 32

_ID_BYTES: Final = 16


def secret_of(raw: bytes) -> str:
    """Write `SECRET_BYTES` random bytes as the secret that an endpoint is given."""
    return PREFIX + base64.b64encode(raw).decode()


def message_id(key: str, since: datetime) -> str:
    """
    Name a message by its job's key and the moment it was enqueued at: the same at every attempt.

    The key alone would not do: it may be used again when it is forgotten, and a database that is
    made anew counts its jobs from 1.
    """
    told = f"{key}\n{since.isoformat()}".encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(told).digest()[:_ID_BYTES]
    return "msg_" + base64.b32encode(digest).decode().rstrip("=").lower()


def signed(secrets: Sequence[str], message: str, at: datetime, body: bytes) -> Mapping[str, str]:
    """
    Return the headers that prove who sent `body`: id, time of the attempt, a signature per secret.

    Raises:
        ValueError: a secret is not written as `secret_of` does; it is not quoted.

    """
    seconds = str(int(at.timestamp()))
    content = f"{message}.{seconds}.".encode() + body
    macs = [hmac.digest(_key(secret), content, "sha256") for secret in secrets]
    return {
        "webhook-id": message,
        "webhook-timestamp": seconds,
        "webhook-signature": " ".join(f"v1,{base64.b64encode(mac).decode()}" for mac in macs),
    }


def _key(secret: str) -> bytes:
    if not secret.startswith(PREFIX):
        raise ValueError(f"a secret of an endpoint begins with {PREFIX}")
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        raise ValueError(f"a secret of an endpoint is {PREFIX} and base64") from None
