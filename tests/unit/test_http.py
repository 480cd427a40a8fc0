from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq.domain.http import EXCERPT_MAX, check, retry_after
from reliq.errors import PermanentError, TemporaryError

DATE = "Sun, 29 Nov 2026 10:00:00 GMT"


@dataclass
class Answer:
    status_code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


class Unread:
    status_code = 404
    headers: Mapping[str, str] = {}

    @property
    def text(self) -> str:
        raise RuntimeError("the stream was not read")


def ending(status: int, *, strict: bool = False) -> str:
    try:
        check(Answer(status), "the shop", strict=strict)
    except PermanentError as error:
        return "permanent" if error.status == status else "without its status"
    except TemporaryError as error:
        return "temporary" if error.status == status else "without its status"
    return "fine"


def complaint(answer: Any, what: str = "the shop") -> str:
    with pytest.raises((PermanentError, TemporaryError)) as caught:
        check(answer, what)
    return str(caught.value)


@pytest.mark.parametrize(
    ("statuses", "expected", "strictly"),
    [
        ([200, 201, 202, 204, 206, 299], "fine", "fine"),
        ([301, 302, 303, 304, 307, 308], "permanent", "temporary"),
        ([400, 401, 403, 404, 406, 409, 410, 413, 422, 451, 499], "permanent", "permanent"),
        ([408, 425], "temporary", "permanent"),
        ([429], "temporary", "temporary"),
        ([500, 501, 502, 503, 504, 507, 599], "temporary", "temporary"),
        ([100, 199, 600, 999, 0], "temporary", "temporary"),
    ],
)
def test_a_status_ends_the_job_as_the_table_says(
    statuses: list[int], expected: str, strictly: str
) -> None:
    assert {ending(status) for status in statuses} == {expected}
    assert {ending(status, strict=True) for status in statuses} == {strictly}


@given(status=st.integers(-1, 1000))
def test_strict_is_article_a_whatever_the_status(status: int) -> None:
    if 200 <= status < 300:
        expected = "fine"
    elif 400 <= status < 500 and status != 429:
        expected = "permanent"
    else:
        expected = "temporary"

    assert ending(status, strict=True) == expected


@pytest.mark.parametrize(
    ("value", "date", "expected"),
    [
        ("0", None, 0),
        ("120", None, 120),
        (" 120 ", None, 120),
        ("86401", None, 86_401),
        ("Sun, 29 Nov 2026 10:02:00 GMT", DATE, 120),
        ("Sunday, 29-Nov-26 10:02:00 GMT", DATE, 120),
        ("Sun Nov 29 10:02:00 2026", DATE, 120),
        ("Sun, 29 Nov 2026 10:02:00 GMT", None, None),
        ("Sun, 29 Nov 2026 10:02:00 GMT", "yesterday", None),
        ("Sun, 29 Nov 2026 10:00:00 GMT", DATE, None),
        ("Sun, 29 Nov 2026 09:00:00 GMT", DATE, None),
        ("", DATE, None),
        ("-1", DATE, None),
        ("1.5", DATE, None),
        ("+5", DATE, None),
        ("1_000", DATE, None),
        ("\u0665", DATE, None),
        ("1e3", DATE, None),
        ("5, 10", DATE, None),
        ("9" * 11, DATE, 10**9),
        ("9" * 5000, DATE, None),
        ("soon", DATE, None),
        ("Sun, 99 Nov 2026 10:02:00 GMT", DATE, None),
    ],
)
def test_retry_after_is_read_or_ignored(value: str, date: str | None, expected: int | None) -> None:
    headers = {"Retry-After": value} | ({} if date is None else {"Date": date})

    found = retry_after(headers)

    assert found == (None if expected is None else timedelta(seconds=expected))


def test_without_retry_after_there_is_no_wish() -> None:
    assert retry_after({"Date": DATE}) is None


@given(value=st.text(max_size=40), date=st.text(max_size=40) | st.just(DATE))
def test_no_retry_after_whatever_raises_or_goes_back(value: str, date: str) -> None:
    found = retry_after({"retry-after": value, "date": date})

    assert found is None or found >= timedelta(0)


@given(
    sent=st.datetimes(datetime(1990, 1, 1), datetime(2068, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    pause=st.timedeltas(timedelta(seconds=1), timedelta(days=30)),
)
def test_a_date_counts_from_the_answers_own_date(sent: datetime, pause: timedelta) -> None:
    sent, pause = sent.replace(microsecond=0), timedelta(seconds=int(pause.total_seconds()))
    headers = {
        "Date": format_datetime(sent, usegmt=True),
        "Retry-After": format_datetime(sent + pause, usegmt=True),
    }

    assert retry_after(headers) == pause


@pytest.mark.parametrize("name", ["Retry-After", "retry-after", "RETRY-AFTER"])
def test_the_wish_reaches_the_temporary_error(name: str) -> None:
    with pytest.raises(TemporaryError) as caught:
        check(Answer(503, {name: "30"}), "the shop")

    assert caught.value.after == timedelta(seconds=30)


def test_an_answer_of_httpx_fits() -> None:
    check(httpx.Response(204), "the shop")
    with pytest.raises(TemporaryError, match="the shop answered 429: slow down") as caught:
        check(httpx.Response(429, headers={"Retry-After": "7"}, text="slow down"), "the shop")

    assert caught.value.after == timedelta(seconds=7)


def test_an_error_says_what_was_asked_and_what_came_back() -> None:
    assert complaint(Answer(400, text='{"error":\n "no such\tperson"}')) == (
        'the shop answered 400: {"error": "no such person"}'
    )
    assert complaint(Answer(500)) == "the shop answered 500"
    assert complaint(Answer(410)) == "the shop answered 410, gone for good"
    assert complaint(Answer(302, {"Location": "https://elsewhere/?token=hush"})) == (
        "the shop answered 302, a redirect, which is not followed"
    )


def test_a_body_that_cannot_be_read_does_not_hide_the_status() -> None:
    assert complaint(Unread()) == (
        "the shop answered 404: (its body could not be read: RuntimeError)"
    )


def test_a_long_body_is_cut() -> None:
    text = complaint(Answer(500, text="x" * 1_000_000))

    assert text == f"the shop answered 500: {'x' * (EXCERPT_MAX - 1)}…"


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://api.telegram.org/bot1:hush/sendMessage", "https://api.telegram.org/…"),
        ("https://shop.example?token=hush", "https://shop.example/…"),
        ("postgres://me:hush@db.example:5432/x", "postgres://db.example:5432/…"),
        ("HTTPS://me:hush@shop.example", "HTTPS://shop.example/…"),
    ],
)
def test_urls_lose_what_may_be_secret(url: str, kept: str) -> None:
    assert complaint(Answer(400, text=f'see "{url}" again')) == (
        f'the shop answered 400: see "{kept}" again'
    )
    assert complaint(Answer(400), f"POST {url}") == f"POST {kept} answered 400"
    assert "hush" not in complaint(Answer(400, text="-" * (EXCERPT_MAX - 20) + f" {url}"))


@given(text=st.text(), what=st.text())
def test_any_message_can_be_stored(text: str, what: str) -> None:
    message = complaint(Answer(400, text=text + "\0\ud800"), what + "\0\udfff")

    assert "\0" not in message
    message.encode("utf-8")
