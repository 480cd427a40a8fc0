import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from reliq.domain.text import (
    CLASS_MAX,
    TEXT_MAX,
    error_class,
    error_text,
    result_json,
    storable,
    storable_json,
)
from reliq.errors import PermanentError

# Not st.text(): it leaves surrogates out of a mixed alphabet without a word.
texts = st.lists(st.characters() | st.sampled_from("\0\ud800\udfff\ufffd")).map("".join)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise self.args[0]


class Wordless(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]  # noqa: PLE0307


def is_storable(text: str) -> bool:
    text.encode("utf-8")
    return "\0" not in text


def deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def cycle() -> list[Any]:
    round_and_round: list[Any] = []
    round_and_round.append(round_and_round)
    return round_and_round


def test_the_texts_of_this_module_hold_what_hurts() -> None:
    for bad in "\0\ud800\udfff":
        find(texts, lambda text, bad=bad: bad in text)


@given(text=texts)
def test_any_text_becomes_storable(text: str) -> None:
    assert is_storable(storable(text))
    assert len(storable(text)) == len(text)


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_storable_text_stays_as_it_is(text: str) -> None:
    assert storable(text) == text


@given(message=texts | texts.map(lambda text: text * 1000))
def test_any_error_becomes_a_short_storable_text(message: str) -> None:
    for text in (error_text(message), error_text(ValueError(message))):
        assert is_storable(text)
        assert len(text) <= TEXT_MAX


def test_an_error_keeps_its_type_and_its_beginning() -> None:
    assert error_text(KeyError("shop")) == "KeyError: 'shop'"
    assert error_text("as it is") == "as it is"
    assert error_text("x" * TEXT_MAX) == "x" * TEXT_MAX
    assert error_text("a" + "x" * TEXT_MAX) == "a" + "x" * (TEXT_MAX - 2) + "…"


def test_an_error_whose_str_raises_is_still_described() -> None:
    assert error_text(Unspeakable(OSError("no"))) == "Unspeakable: (its message raised OSError)"
    assert error_text(Unspeakable(RecursionError())) == (
        "Unspeakable: (its message raised RecursionError)"
    )
    assert error_text(Wordless()) == "Wordless: (its message raised TypeError)"
    assert error_text(Unspeakable(Unspeakable(OSError("no")))) == (
        "Unspeakable: (its message raised Unspeakable)"
    )


@given(value=values)
def test_any_json_value_becomes_storable(value: Any) -> None:
    encoded = storable_json(value)

    assert is_storable(encoded)
    assert "\\u0000" not in encoded.replace("\\\\", "")
    json.loads(encoded)


@given(value=st.recursive(st.none() | st.integers(), st.lists, max_leaves=9) | st.text('ab\\"/é'))
def test_a_storable_value_comes_back_as_it_was(value: Any) -> None:
    assert json.loads(storable_json(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1, tzinfo=UTC),
        float("nan"),
        float("-inf"),
        {"a": {1, 2}},
        {"a": [b"bytes"]},
        {("a", "b"): 1},
        {float("nan"): 1},
        10**5000,
        cycle(),
        deep(100_000),
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_payload_that_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"the payload is not JSON .*pass ids, texts"):
        storable_json(value)


def test_the_class_of_an_error_is_named_with_its_module_unless_it_is_everybodys() -> None:
    odd = type("N" * CLASS_MAX, (Exception,), {"__module__": "shop", "__qualname__": "N\0" * 200})

    assert error_class(KeyError("k")) == "KeyError"
    assert error_class(PermanentError("no")) == "PermanentError"
    assert error_class(json.JSONDecodeError("no", "", 0)) == "json.decoder.JSONDecodeError"
    assert error_class(odd()).startswith("shop.N\ufffdN")
    assert len(error_class(odd())) == CLASS_MAX


@given(result=values)
def test_a_result_is_kept_as_it_is_or_says_why_not(result: Any) -> None:
    text = result_json(result)

    assert is_storable(text)
    assert len(text) <= TEXT_MAX
    assert text == storable_json(result) or list(json.loads(text)) == ["not_kept"]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (datetime(2026, 11, 30, tzinfo=UTC), "this datetime is not"),
        (float("nan"), "this float is not"),
        (cycle(), "this list is not"),
        (10**5000, "this int is not"),
        ("x" * TEXT_MAX, "this has 4002"),
    ],
    ids=["a date", "nan", "a cycle", "a number too long to write", "too long"],
)
def test_a_result_that_cannot_be_kept_says_why(result: Any, why: str) -> None:
    assert why in json.loads(result_json(result))["not_kept"]
