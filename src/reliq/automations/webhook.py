"""
Tell other people's systems what happened: signed, to an address that was checked, once and again.

```python
async with connection.transaction():
    ...  # what happened
    await enqueue_many(connection, [delivery("shop", "order.paid", {"order": 7})])
```

An endpoint is a row (`reliq endpoint add shop https://…`), and its jobs have a queue of their own, so
that one that is slow or away delays no other. Addresses and answers are strangers': a name is looked up
once an attempt and every address it has must be public, the request goes to one of those and nowhere
else, no redirect is followed, and of an answer no more is read than is needed to say what was wrong.
"""

import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

import anyio
import httpx
import structlog

from reliq.app import Handler
from reliq.automations.outgoing import Answer, client, read_answer
from reliq.domain.addresses import is_public
from reliq.domain.endpoint import Endpoint, check_name, queue_of
from reliq.domain.http import check
from reliq.domain.job import NewJob
from reliq.domain.outcome import Done, GiveUp, Outcome
from reliq.domain.policy import WEBHOOK
from reliq.domain.signing import message_id, signed
from reliq.errors import PermanentError, StoreUnavailable, TemporaryError
from reliq.job import Job
from reliq.settings import Settings

log = structlog.get_logger()

Noted = TypeVar("Noted")

KIND: Final = "webhook.deliver"

DATA_BYTES_MAX: Final = 20_000
"""Of an event's data as JSON: receivers cut longer bodies off; send a link to the rest."""

ASKING_MAX: Final = 4
"""Threads that ask for one name at once; they go on when who asked has gone."""
_ASK_AGAIN_S: Final = 0.02

CONNECT: Final = timedelta(seconds=5)
ROOM: Final = timedelta(seconds=15)
"""For what an attempt does beside the request, within the time limit of its kind."""

HEADERS: Final = {
    "user-agent": "reliq-webhook/1",
    "content-type": "application/json",
    "connection": "close",
}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a name and a port to the addresses of it, which may be others the next time."""


def delivery(
    endpoint: str, event_type: str, data: Any, *, key: str | None = None, ordered: bool = False
) -> NewJob:
    """
    Describe the job that sends one event to an endpoint: `{"type", "timestamp", "data"}`.

    With a `key` it is sent to this endpoint once for as long as keys are kept. `ordered` events of an endpoint are sent
    one at a time and in the order they were enqueued in: one that is retried holds up those behind it.

    Raises:
        ValueError: a name or type that cannot be one, or data that is no JSON or too long.

    """
    if not event_type or not event_type.isprintable():
        raise ValueError(f"the type of an event is a short text, as order.paid, not {event_type!r}")
    if (size := len(_encoded(data))) > DATA_BYTES_MAX:
        raise ValueError(
            f"the data of an event has at most {DATA_BYTES_MAX} bytes of JSON, not {size}: send a link"
        )
    queue = queue_of(check_name(endpoint))
    return NewJob(
        kind=KIND, payload={"endpoint": endpoint, "type": event_type, "data": data},
        key=None if key is None else f"{endpoint}:{key}", queue=queue, group_key=queue if ordered else None,
    )  # fmt: skip


def handler(settings: Settings) -> Handler:
    """Deliver as the settings say: how long it may take, and whether it may go to private addresses."""
    private = settings.webhook_private
    webhook = Webhook(
        private=private,
        deadline=settings.webhook_timeout,
        is_allowed=anywhere if private else is_public,
    )
    policy = replace(WEBHOOK, time_limit=settings.webhook_timeout + ROOM)
    return Handler(webhook.deliver, policy=policy, payload=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What the job of one delivery holds; see `delivery`."""

    endpoint: str
    type: str
    data: Any


_asking: Final = Counter[str]()
"""How many threads ask for a name right now; nobody can stop them."""
_lock: Final = threading.Lock()


async def looked_up(host: str, port: int) -> Sequence[str]:
    """
    Ask the system for the addresses of a name, in a thread that no other name waits for.

    asyncio's own look-ups share a few threads: a name server that is silent for half a minute would hold
    them all. Who comes when too many ask for the name waits, within the deadline of the attempt.

    Raises:
        OSError: there is none of that name.

    """
    while True:
        while _asking[host] >= ASKING_MAX:
            await anyio.sleep(_ASK_AGAIN_S)
        found = await anyio.to_thread.run_sync(
            _look_up, host, port, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )
        if found is not None:
            return found


def _look_up(host: str, port: int) -> Sequence[str] | None:
    """Ask, unless as many do already."""
    with _lock:  # counted by the thread itself: who asks may be gone before it has begun
        if _asking[host] >= ASKING_MAX:
            return None
        _asking[host] += 1
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    finally:
        with _lock:
            _asking[host] -= 1
            if not _asking[host]:
                del _asking[host]
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def anywhere(_: str) -> bool:
    """Allow every address: of a network that is all one's own."""
    return True


@cache
def _trust() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def opened(_: Job) -> httpx.AsyncClient:
    """
    Open a client for one attempt, with no cookies, proxies or passwords of anybody's.

    None is shared: a connection that was verified for one name must not serve another one that has
    the same address.
    """
    return client(verify=_trust(), trust_env=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """
    Delivers; `deadline` bounds a request, from looking up the name to the last byte that is read.

    `private` allows http and any port, `is_allowed` decides of addresses; `resolve` and `client` are
    what it uses of the world.
    """

    private: bool
    deadline: timedelta
    resolve: Resolve = looked_up
    is_allowed: Callable[[str], bool] = is_public
    client: Callable[[Job], httpx.AsyncClient] = field(default=opened, repr=False)

    async def deliver(self, job: Job[Event]) -> Outcome:
        """
        Send one event; what became of it is written down with its endpoint.

        Raises:
            PermanentError: repeating cannot help: the address is refused, or the answer says so.
            TemporaryError: it may: no answer, or one that says so.

        """
        name, endpoints, held = job.data.endpoint, job.stores.endpoints, (job.id, job.fence)
        endpoint = await endpoints.find(name, job.id)
        if endpoint is None:
            return GiveUp(
                f"there is no endpoint {name!r}: `reliq endpoint add`, then `reliq retry {job.id}`"
            )
        if endpoint.disabled_why is not None:
            return GiveUp(
                f"the endpoint {name} is disabled ({endpoint.disabled_why}): `reliq endpoint enable "
                f"{name}`, then `reliq retry {job.id}`"
            )
        message = message_id(job.key, endpoint.enqueued_at)
        try:
            answer, address = await self._send(job, endpoint, message)
            check(answer, f"the endpoint {name}")
        except (PermanentError, TemporaryError) as error:
            gone = f"it answered {error.status}" if error.status == HTTPStatus.GONE else None
            why = await noted(endpoints.undelivered(endpoint, held, gone=gone), job)
            if why is None:
                raise
            said = f"{error}; the endpoint is disabled: {why}; `reliq endpoint enable {name}`"
            raise PermanentError(said, status=error.status) from None
        await noted(endpoints.delivered(endpoint, held), job)
        return Done({"status": answer.status_code, "message": message, "address": address})

    async def _send(self, job: Job[Event], endpoint: Endpoint, message: str) -> tuple[Answer, str]:
        """Return the answer, and the address that gave it."""
        what = f"the endpoint {endpoint.name}"
        url = target(endpoint.url, private=self.private)
        told = {
            "type": job.data.type,
            "timestamp": endpoint.enqueued_at.isoformat(),
            "data": job.data.data,
        }
        body = _encoded(told)
        headers = {
            **HEADERS,
            **signed(endpoint.secrets, message, endpoint.now, body),
            "host": url.netloc.decode(),
        }
        seconds = self.deadline.total_seconds()
        problem = "no address"
        try:
            with anyio.fail_after(seconds):
                async with self.client(job) as client:
                    for address in await self._addresses(url, what):
                        request = client.build_request(
                            "POST", url.copy_with(host=address), content=body, headers=headers,
                            timeout=httpx.Timeout(seconds, connect=min(seconds, CONNECT.total_seconds())),
                            extensions={"sni_hostname": url.raw_host.decode()},
                        )  # fmt: skip
                        try:
                            return await read_answer(client, request, url), address
                        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                            problem = _problem(error)  # nothing was sent: the next one may do
        except TimeoutError:
            problem = f"within {seconds:g} s"
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            OSError,
        ) as error:  # their texts quote the address
            problem = _problem(error)
        raise TemporaryError(f"{what} did not answer ({problem})")

    async def _addresses(self, url: httpx.URL, what: str) -> Sequence[str]:
        """Look the name up and return its addresses, every one of them checked."""
        try:
            found = await self.resolve(url.raw_host.decode(), url.port or _PORTS[url.scheme])
        except (OSError, UnicodeError) as error:
            raise TemporaryError(
                f"the name of {what} was not found ({type(error).__name__})"
            ) from None
        if bad := [each for each in found if not self.is_allowed(each)]:
            raise PermanentError(
                f"{what} is at {bad[0]}, which is no public address: nothing was sent"
            )
        return found


async def noted(writing: Awaitable[Noted], job: Job) -> Noted | None:
    """
    Write down with an endpoint what an attempt came to, unless the database is away.

    The job says so, too, and the settle waits for the database: what was delivered is not sent again for
    want of a note, and what was answered is not hidden by it. The next delivery decides.
    """
    try:
        return await writing
    except StoreUnavailable as error:
        log.warning("endpoint.not_noted", job_id=job.id, error=str(error))
        return None


_PORTS: Final = {"https": 443, "http": 80}
PORT_MAX: Final = 65_535


def target(text: str, *, private: bool) -> httpx.URL:
    """
    Read the address of an endpoint, once: what was checked is what is called.

    Raises:
        PermanentError: it is none that may be called; the message quotes none of it.

    """
    try:
        url = httpx.URL(text)
        host = url.host  # decodes
    except (httpx.InvalidURL, UnicodeError):
        raise PermanentError(
            "the address of the endpoint is none: write https://host/path"
        ) from None
    if url.scheme not in _PORTS or not host:
        raise PermanentError("the address of the endpoint is none: write https://host/path")
    if url.userinfo or url.fragment:
        raise PermanentError("the address of the endpoint has a user, a password or a #fragment")
    if url.port is not None and not 0 < url.port <= PORT_MAX:
        raise PermanentError(f"the port of the endpoint is none: they go from 1 to {PORT_MAX}")
    if not private and (url.scheme != "https" or url.port not in {None, 443}):
        raise PermanentError(
            "an endpoint is https, at port 443; only with RELIQ_WEBHOOK_PRIVATE=on, for tests, it "
            "may be another"
        )
    return url


def check_target(text: str, *, private: bool) -> None:
    """
    Refuse an address that no delivery would go to, also one that needs no looking up.

    Raises:
        PermanentError: it is such a one.

    """
    host = target(text, private=private).raw_host.decode()
    try:  # as the system reads them: 127.1 and 0x7f000001 are addresses, too
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (UnicodeError, OSError) as error:
        if isinstance(error, UnicodeError) or {":", "%"} & set(host):
            raise PermanentError(
                "the host of the endpoint is neither a name nor an address: write https://host/path"
            ) from None
        found = []
    is_inner = host.endswith("localhost") or not all(is_public(str(each[4][0])) for each in found)
    if is_inner and not private:
        raise PermanentError(
            "the endpoint is at no public address, and nothing would be sent; only with "
            "RELIQ_WEBHOOK_PRIVATE=on, for tests, it may be"
        )


def _problem(error: BaseException) -> str:
    """Say in a word what went wrong; of a certificate, what is wrong with it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate: {cause.verify_message}"
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


_encode: Final = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _encoded(value: Any) -> bytes:
    """Write JSON once: these bytes are signed, and these are sent."""
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the data of an event is not JSON ({error})") from None
