"""
One request to somebody else's service: bounded in time, repeatable, and silent about its address.

An address may hold a token (Telegram's does, and so do those of many CRMs), and httpx puts it
into the texts and fields of its errors. So no error of httpx leaves this module, not even as
the cause of ours.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from html import escape, unescape
from typing import Any, Final, cast
from urllib.parse import quote, unquote, unquote_plus

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
_DIGIT: Final = re.compile(r"[0-9]")


READ_BYTES_MAX: Final = 16 * 1024
"""Of an answer's body: read, so that the other side may finish."""
KEPT_MAX: Final = 1024
"""Characters of it that are looked at, for the error."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is kept of an answer, as `check` reads it; its text quotes nothing of the address."""

    status_code: int
    headers: Mapping[str, str]
    text: str


def client(**more: Any) -> httpx.AsyncClient:
    """
    Make a client for addresses of others: redirects are not followed, and not even read.

    httpx reads where one leads, and what is no address would hide the status.
    """
    return httpx.AsyncClient(event_hooks={"response": [_unredirected]}, **more)


async def _unredirected(response: httpx.Response) -> None:
    response.headers.pop("location", None)


async def read_answer(
    http: httpx.AsyncClient, request: httpx.Request, address: httpx.URL
) -> Answer:
    """
    Send, and read as much of the answer as is worth it, as it came: unpacked it may be endless.

    The status is the answer. A body that hangs, drips or breaks off is read for half of the time
    that is left until the caller's deadline, and takes nothing away from it. `address` is what
    nobody is to read in it.
    """
    request.headers["accept-encoding"] = "identity"
    response = await http.send(request, stream=True, follow_redirects=False)
    read = b""
    left_s = anyio.current_effective_deadline() - anyio.current_time()
    try:
        with anyio.move_on_after(left_s / 2), suppress(httpx.HTTPError, OSError):
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) >= READ_BYTES_MAX:
                    break
    finally:
        await response.aclose()
    text = _without_address(read.decode("utf-8", "replace"), address)
    return Answer(response.status_code, response.headers, text[:KEPT_MAX])


def _without_address(text: str, url: httpx.URL) -> str:
    """
    Mask an address, whole and in parts, as sent and in clear: many a 404 page repeats what was asked for.

    Short parts are no tokens and may be words of the page; of those the path alone is masked. Where
    a piece of a token is left all the same, nothing is quoted.
    """
    path, _, query = url.raw_path.decode().partition("?")
    parts = [
        f"{path}?{query}",
        path,
        query,
        url.host,
        *url.userinfo.decode().split(":"),
        *path.split("/"),
    ]
    parts += [part for pair in query.split("&") for part in pair.split("=", 1)]
    secret = {each for part in parts if len(part) >= TOKEN_MIN for each in _written(part)}
    masks = [re.escape(each) for each in sorted(secret, key=len, reverse=True)]
    if len(path) > 1:
        masks += [rf"{re.escape(each)}(?!\w)" for each in _written(path)]
    if masks:
        text = re.sub("|".join(masks), "…", text, flags=re.IGNORECASE)
    plain = unquote(unescape(text)).casefold()
    tokens = [
        part for part in map(unquote, parts) if len(part) >= TOKEN_MIN and _DIGIT.search(part)
    ]
    is_told = any(piece in plain for part in tokens for piece in _pieces(part.casefold()))
    return "" if is_told else text


def _pieces(token: str) -> Iterator[str]:
    """Cut it as pages do; what is left of it in a text is too much, however it is written there."""
    return (token[at : at + TOKEN_MIN] for at in range(len(token) - TOKEN_MIN + 1))


def _written(part: str) -> set[str]:
    """Write it in the ways of pages: as it is, in clear, as HTML and as JSON."""
    plain = {part, unquote(part), unquote_plus(part)}
    return plain | {escape(each) for each in plain} | {each.replace("/", "\\/") for each in plain}


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
        check(answer, self.what)

    async def _answer(self, method: str, more: Mapping[str, Any]) -> Answer | str:
        """Return the answer, or in a word what went wrong, so that no cause hangs on it."""
        seconds = self.deadline.total_seconds()
        try:
            with anyio.fail_after(seconds):
                http = self.http()
                request = http.build_request(
                    method, self.url.get_secret_value(), timeout=seconds, **more
                )
                return await read_answer(http, request, request.url)
        except TimeoutError:
            return f"within {seconds:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return type(error).__name__
