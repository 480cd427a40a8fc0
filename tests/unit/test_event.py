import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq.domain.event import KEY_BYTES_MAX, Delivery, storable_key

# Not st.text(): it leaves surrogates out of a mixed alphabet without a word.
texts = st.lists(st.characters() | st.sampled_from("\0\ud800\udfff\ufffd")).map("".join)
keys = texts | st.builds(lambda text, times: text * times, texts, st.integers(1, 600))


def delivery(*headers: tuple[bytes, bytes], body: bytes = b"") -> Delivery:
    return Delivery(source="site", headers=headers, body=body)


@given(key=keys)
def test_any_key_fits_an_index(key: str) -> None:
    stored = storable_key(key).encode("utf-8")

    assert len(stored) <= KEY_BYTES_MAX
    assert b"\0" not in stored


@given(a=keys, b=keys)
def test_different_keys_stay_different(a: str, b: str) -> None:
    assert (storable_key(a) == storable_key(b)) == (a == b)


@given(key=st.text("abc-é", max_size=KEY_BYTES_MAX // 2))
def test_a_key_that_fits_stays_as_it_is(key: str) -> None:
    assert storable_key(key) == key


def test_long_keys_that_differ_at_their_end_stay_different() -> None:
    long = "x" * 10_000

    assert storable_key("x" * KEY_BYTES_MAX) == "x" * KEY_BYTES_MAX
    assert storable_key(long).startswith("sha256:")
    assert len({storable_key(long + end) for end in ("", "a", "b", "\0", "\ud800", "�")}) == 6
    assert len({storable_key(f"a{bad}") for bad in ("", "\0", "\ud800", "\udc00", "�")}) == 5


def test_a_header_is_found_whatever_the_case_it_is_asked_for() -> None:
    arrived = delivery((b"x-id", b" \t7\xe9 "), (b"other", b"8"))

    assert arrived.header("X-Id") == "7é"
    assert arrived.values("x-ID") == [b"7\xe9"]
    assert arrived.header("X_Id") is None


def test_a_header_that_occurs_twice_has_no_one_value() -> None:
    arrived = delivery((b"x-id", b"1"), (b"y", b"2"), (b"x-id", b"1"))

    assert arrived.header("x-id") is None
    assert arrived.values("x-id") == [b"1", b"1"]
    assert arrived.values("z") == []


def test_only_spaces_and_tabs_are_trimmed_from_a_header() -> None:
    assert delivery((b"x", b"\xa07\r\n")).values("x") == [b"\xa07\r\n"]


@given(value=st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=9))
def test_a_body_is_read_as_json(value: Any) -> None:
    assert delivery(body=json.dumps(value, ensure_ascii=False).encode()).json() == value
    assert delivery(body=b"\xef\xbb\xbf" + json.dumps(value).encode()).json() == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'"\xed\xa0\x80"',
        '{"a": 1}'.encode("utf-16"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 5000,
    ],
    ids=lambda body: repr(body[:6]),
)
def test_a_body_that_is_not_json_in_utf8_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - several modules' words
        delivery(body=body).json()


@given(body=st.lists(st.sampled_from([b"[", b"]", b'"', b"1", b",", b"\xff", b"\0"])).map(b"".join))
def test_no_body_raises_anything_but_a_value_error(body: bytes) -> None:
    try:
        delivery(body=body).json()
    except ValueError:
        return
    body.decode("utf-8")
