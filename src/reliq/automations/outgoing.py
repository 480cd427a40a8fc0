"""
One request to somebody else's service: bounded in time, repeatable, and silent about its address.

An address may hold a token (Telegram's does, and so do those of many CRMs), and httpx puts it
into the texts and fields of its errors. So no error of httpx leaves this module, not even as
the cause of ours.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, cast
from urllib.parse import quote

import anyio
import httpx
from pydantic import SecretStr

from reliq.domain.fields import check_called, check_duration
from reliq.domain.http import WEB_ADDRESS, check
from reliq.domain.text import storable
from reliq.errors import ConfigInvalid, TemporaryError

DEADLINE: Final = timedelta(seconds=10)

TOKEN_MIN: Final = 8
"""Characters from which on a part of an address may be a token, and is not quoted."""


READ_BYTES_MAX: Final = 16 * 1024
KEPT_BYTES_MAX: Final = 1024
"""Of an answer's body: read, so that the other side may finish; and looked at, for the error."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is kept of an answer, as `check` reads it."""

    status_code: int
    headers: Mapping[str, str]
    text: str


async def read_answer(client: httpx.AsyncClient, request: httpx.Request) -> Answer:
    """Send, and read as much of the answer as is worth it, as it came: unpacked it may be endless."""
    request.headers["accept-encoding"] = "identity"
    response = await client.send(request, stream=True, follow_redirects=False)
    read = b""
    try:
        async for chunk in response.aiter_raw():
            read += chunk
            if len(read) >= READ_BYTES_MAX:
                break
    finally:
        await response.aclose()
    text = read[:KEPT_BYTES_MAX].decode("utf-8", "replace")
    return Answer(response.status_code, response.headers, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """
    An address to call, with JSON or nothing; `what` names it in errors, `http` is asked for at every call.

    `deadline` bounds a whole call, from looking up the name to the last byte of the answer:
    httpx's own timeouts begin anew with every byte that drips in.
    """

    http: Callable[[], httpx.AsyncClient] = field(repr=False)
    url: SecretStr
    what: str
    deadline: timedelta = DEADLINE

    def __post_init__(self) -> None:
        """
        Refuse what could be called at no time; no message quotes the address.

        Raises:
            ConfigInvalid: there is no address, or it is none.
            ValueError: another field cannot work.

        """
        where, url = f"Outgoing(what={self.what!r})", cast("object", self.url)
        if url is None:
            raise ConfigInvalid([f"{where} has no url: set what it is taken from, or make none"])
        if not isinstance(url, SecretStr):
            raise ConfigInvalid([f"{where}: its url is no SecretStr, which keeps it out of logs"])
        if not WEB_ADDRESS.fullmatch(url.get_secret_value()):
            raise ConfigInvalid([f"{where}: its url is wrong: write it as https://host/path"])
        check_called(f"{where}: http", self.http)
        check_duration(f"{where}: deadline", self.deadline)

    async def post(self, body: Mapping[str, Any], *, key: str | None = None) -> None:
        """
        Send `body`; return when the answer is a success.

        `key` goes along as `Idempotency-Key`: a service that knows the header does not act
        twice when an attempt is repeated.

        Raises:
            PermanentError: repeating cannot help.
            TemporaryError: it may: no answer, no connection, or an answer that says so.

        """
        # Keys may be any text, and a header holds visible ASCII.
        headers = {} if key is None else {"idempotency-key": quote(storable(key), safe=":@/+,")}
        await self._call("POST", json=body, headers=headers)

    async def get(self) -> None:
        """Call the address with nothing to say; return and raise as `post` does."""
        await self._call("GET")

    async def _call(self, method: str, **more: Any) -> None:
        answer = await self._answer(method, more)
        if isinstance(answer, str):
            raise TemporaryError(f"{self.what} did not answer ({answer})")
        check(_Masked(answer, self.url), self.what)

    async def _answer(self, method: str, more: Mapping[str, Any]) -> Answer | str:
        """Return the answer, or in a word what went wrong, so that no cause hangs on it."""
        seconds = self.deadline.total_seconds()
        try:
            with anyio.fail_after(seconds):
                http = self.http()
                request = http.build_request(
                    method, self.url.get_secret_value(), timeout=seconds, **more
                )
                return await read_answer(http, request)
        except TimeoutError:
            return f"within {seconds:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return type(error).__name__


@dataclass(frozen=True, slots=True)
class _Masked:
    """An answer as `check` may quote it: many a 404 page repeats the path that was asked for."""

    answer: Answer
    url: SecretStr

    @property
    def status_code(self) -> int:
        return self.answer.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return self.answer.headers

    @property
    def text(self) -> str:
        text = self.answer.text
        for part in re.split(r"[/?&=]", self.url.get_secret_value()):
            if len(part) >= TOKEN_MIN:
                text = text.replace(part, "…")
        return text
