"""
What an upstream's HTTP answer means for the job that asked.

| status                 | means (`strict`, article A's rule, in brackets)              |
|------------------------|--------------------------------------------------------------|
| 2xx                    | done                                                         |
| 408, 425, 429, 5xx     | temporary (408 and 425: permanent)                           |
| 410                    | permanent; `status` 410 also tells the caller to disable the endpoint |
| other 4xx              | permanent                                                    |
| 3xx                    | permanent, for a redirect is never followed (temporary)      |
| anything else          | temporary: it is no answer of HTTP                           |

Rule D9 of the requirements. The upstream's Retry-After goes along as a floor for the pause.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, Protocol

from reliq.domain.text import storable
from reliq.errors import PermanentError, TemporaryError

EXCERPT_MAX: Final = 200
"""Characters of the answer's body that an error message quotes."""

_TRY_LATER: Final = frozenset({408, 425, 429})
_TOO_MANY: Final = 429
_GONE: Final = 410

_SECONDS: Final = re.compile(r"[0-9]{1,100}")
_SECONDS_MAX: Final = 10**9
_URL: Final = re.compile(
    r"""([a-z][a-z0-9+.-]{0,20}://)(?:[^\s/@]*@)?([^\s/?#"'<>]*)[^\s"'<>]*""", re.IGNORECASE
)

WEB_ADDRESS: Final = re.compile(r"https?://[^\s/?#]+(?:[/?#]\S*)?")


class Response(Protocol):
    """What is read of an answer; `httpx.Response` fits. Header names may have any case."""

    @property
    def status_code(self) -> int:
        """The status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""

    @property
    def text(self) -> str:
        """The body."""


def check(response: Response, what: str, *, strict: bool = False) -> None:
    """
    Return if the answer is a success, else raise what the job should end with.

    `what` names the call for the reader of the error, as in "the mail API". URLs in it and in
    the body's excerpt are cut to their host, because paths and queries carry tokens.

    Raises:
        PermanentError: asking again cannot help.
        TemporaryError: it may; `after` is the upstream's Retry-After, if it gave a usable one.

    """
    status = response.status_code
    if 200 <= status < 300:  # noqa: PLR2004
        return
    message = _message(response, what)
    if _is_permanent(status, strict=strict):
        raise PermanentError(message, status=status)
    raise TemporaryError(message, status=status, after=retry_after(response.headers))


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """
    Read Retry-After, in seconds or as a date; None where it is absent or of no use.

    The domain has no clock, and the upstream's may be wrong: a date counts from the answer's
    own Date, and without one it says nothing.
    """
    value = _header(headers, "retry-after")
    if _SECONDS.fullmatch(value):
        return timedelta(seconds=min(int(value), _SECONDS_MAX))
    then, sent = _date(value), _date(_header(headers, "date"))
    if then is None or sent is None or then <= sent:
        return None
    return then - sent


def _is_permanent(status: int, *, strict: bool) -> bool:
    if strict:
        return 400 <= status < 500 and status != _TOO_MANY  # noqa: PLR2004
    return 300 <= status < 500 and status not in _TRY_LATER  # noqa: PLR2004


def _message(response: Response, what: str) -> str:
    status = response.status_code
    answer = str(status)
    if status == _GONE:
        answer += ", gone for good"
    elif 300 <= status < 400:  # noqa: PLR2004
        answer += ", a redirect, which is not followed"
    excerpt = _excerpt(response)
    return storable(f"{_without_urls(what)} answered {answer}") + (
        f": {excerpt}" if excerpt else ""
    )


def _excerpt(response: Response) -> str:
    try:
        text = response.text
    except Exception as error:  # noqa: BLE001 - a body that cannot be read must not hide the status
        return f"(its body could not be read: {type(error).__name__})"
    # Shortened before and after: bodies can be long, and a token must not survive a cut URL.
    text = " ".join(storable(_without_urls(text[: 10 * EXCERPT_MAX])).split())
    return text if len(text) <= EXCERPT_MAX else f"{text[: EXCERPT_MAX - 1]}…"


def _without_urls(text: str) -> str:
    return _URL.sub(lambda url: f"{url[1]}{url[2]}/…", text)


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((value.strip() for key, value in headers.items() if key.lower() == name), "")


def _date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    # asctime's form and "-0000" name no zone; HTTP dates are UTC.
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date
