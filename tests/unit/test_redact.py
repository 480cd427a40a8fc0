"""What the desk shows holds no secret and cannot steer a terminal."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from reliq.domain.redact import hide, preview, printable, redact, redact_headers, scrub

SECRETIVE = [
    "password", "Password", "user_password", "accessToken", "access-token", "TOKEN", "api_key",
    "apiKey", "x-api-key", "client_secret", "Authorization", "private_key", "Set-Cookie",
    "credentials", "sessionId", "X-Signature",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRETIVE)
def test_a_secretive_name_masks_its_value_however_deep(name):
    shown = redact({"order": [{"id": 7, name: "hunter2"}], "note": None})

    assert shown == {"order": [{"id": 7, name: "********"}], "note": None}


@pytest.mark.parametrize("value", ["x", 7, ["x"], {"inner": "x"}])
def test_whatever_a_secretive_name_holds_is_masked(value):
    assert redact({"token": value}) == {"token": "********"}


@pytest.mark.parametrize("value", [None, True, False])
def test_whether_a_secret_is_there_may_be_seen(value):
    assert redact({"has_password": value}) == {"has_password": value}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.just("plain"),
                    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner)))  # fmt: skip
def test_what_holds_no_secret_is_shown_as_it_is(value):
    assert redact(value) == value


@pytest.mark.parametrize(
    "text",
    [
        "login with password=hunter2 failed",
        '{"password": "hunter2", "a": 1',
        '{"password": "hun\\"ter2 hunter2"}',
        "{'api_key': 'hunter2'}",
        '{\\"secret\\": \\"hunter2\\", \\"x\\": 1}',
        "password=b'hunter2 hunter2'",
        "https://h/p?access_token=hunter2&page=1",
        "Authorization: Basic hunter2hunter2",
        "headers: (b'authorization', b'Bearer hunter2hunter2')",
        "postgresql://reliq:hunter2@db/reliq",
        "Cookie: a=hunter2; b=hunter2",
        "POST https://api.telegram.org/bot123456789:hunter2hunter2hunter2hunter2hunter2/send",
        "eyJhbGciOiJIUzI1NiJ9.hunter2.hunter2",
    ],
)
def test_free_text_is_scrubbed_of_what_looks_like_a_secret(text):
    shown = scrub(text)

    assert "hunter2" not in shown
    assert "********" in shown


@pytest.mark.parametrize(
    "text",
    [
        "TimeoutError: the CRM did not answer in 10 s",
        "secret 0 is blank: set it, or take it out of the list",
        "https://shop.example/orders/7?page=2",
        "KeyError: 'order_id'",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert scrub(text) == text


def test_a_header_with_a_secretive_name_is_masked():
    assert redact_headers({"content-type": "a/b", "x-api-token": "hunter2"}) == {
        "content-type": "a/b",
        "x-api-token": "********",
    }


def test_a_json_body_is_shown_masked_and_indented():
    form, shown = preview(b'{"name": "Ada", "password": "hunter2"}', 500)

    assert form == "json"
    assert json.loads(shown) == {"name": "Ada", "password": "********"}


def test_a_form_body_is_shown_as_text_and_masked():
    assert preview(b"name=Ada&password=hunter2&x=1", 500) == (
        "text",
        "name=Ada&password=********&x=1",
    )


def test_a_body_that_is_not_utf8_is_shown_in_hex():
    assert preview(b"\xff\x00A", 500) == ("hex", "ff 00 41")


def test_a_secret_across_the_cut_does_not_show_its_beginning():
    _, shown = preview(b'{"password": "' + b"hunter2" * 100 + b'"}', 30)

    assert "hunter" not in shown


@given(st.binary(), st.integers(1, 50))
def test_any_body_can_be_shown_within_its_bound(body, most):
    _, shown = preview(body, most)

    assert len(shown) <= most
    assert all(c.isprintable() or c in "\n\t" for c in shown)


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl"])))
def test_shown_text_cannot_steer_a_terminal(text):
    shown = printable(text)

    assert all(c.isprintable() or c in "\n\t" for c in shown)
    shown.encode()


@pytest.mark.parametrize(
    "pattern", ["a", "token", "token=", 'token=\\"', "://", " ", "\\", "eyJ", "1234567:", "cookie:"]
)
def test_a_long_text_made_to_hurt_is_scrubbed_in_time(pattern):
    text = pattern * (200_000 // len(pattern))

    started = time.process_time()
    scrub(text)

    assert time.process_time() - started < 3


@pytest.mark.parametrize("value", ["hunter2", 4242, ["hunter2"], {"inner": "hunter2"}, True])
def test_a_field_that_the_app_calls_secret_is_masked_however_deep(value):
    shown = redact({"to": [{"iban": value, "name": "Ada"}]}, {"iban"})

    assert shown == {"to": [{"iban": "********", "name": "Ada"}]}
    assert redact({"iban": None}, {"iban"}) == {"iban": None}
    assert "hunter2" not in preview(b'{"iban": "hunter2"}', 500, {"iban"})[1]


LONG = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKB"


@pytest.mark.parametrize(
    ("iban", "text", "shown"),
    [
        ("hunter2", "no account hunter2, hunter2!", "no account ********, ********!"),
        ({"of": ["hunter2", 4242]}, "hunter2 or 4242", "******** or ********"),
        ("it's\n2", repr("it's\n2"), '"********"'),
        ('a "b" c', json.dumps({"x": 'a "b" c'}), '{"x": "********"}'),
        ("a b&c", "GET /?iban=a+b%26c or a%20b%26c", "GET /?iban=******** or ********"),
        ("007", "room 007, not 10071", "room ********, not 10071"),
        ("hunter2hunter2", "said hunter2hun…", "said ********…"),
        ("Müller 9", f"{'Müller 9'.encode()} or {'Müller 9'!a}", "b'********' or '********'"),
        ("a/b c", "GET /a/b%20c", "GET /********"),
        ('"ü"', json.dumps({"x": '"ü"'}, ensure_ascii=False), '{"x": "********"}'),
        (LONG, f"input='{LONG[:25]}...{LONG[-24:]}', no", "input='********...********', no"),
        (LONG, f"{{'{LONG[:5]}...{LONG[-5:]}'}}", "{'********...********'}"),
        (LONG, f"at 20: {LONG[20:32]}", "at 20: ********"),
        (
            LONG,
            f"{LONG[20:31]} and {LONG[:11]}, {LONG[:3]}…",
            f"{LONG[20:31]} and {LONG[:11]}, {LONG[:3]}…",
        ),
        (True, "True is true", "True is true"),
        (" ", "a text", "a text"),
        (None, "None", "None"),
    ],
)
def test_what_a_secret_field_holds_is_hidden_in_a_text(iban, text, shown):
    payload = json.dumps({"to": [{"iban": iban}], "name": "said"})

    assert hide(text, payload, {"iban"}) == shown
    assert hide(text, payload, set()) == text
    assert hide(text, "no JSON", {"iban"}) == text


def test_a_cut_value_in_an_error_of_a_model_is_hidden():
    class Payer(BaseModel):
        iban: int

    with pytest.raises(ValidationError) as raised:
        Payer.model_validate({"iban": LONG})
    assert LONG[:20] in str(raised.value)

    shown = hide(str(raised.value), json.dumps({"iban": LONG}), {"iban"})

    assert "input_value='********...********', input_type=str" in shown


def test_a_megabyte_of_secrets_is_hidden_in_time():
    payload = json.dumps({"iban": [f"secret number {n}" for n in range(500)] + ["ü…" * 30_000]})
    text = "…".join(f"number {n}" for n in range(300)) + "ü…" * 900

    started = time.process_time()
    hide(text, payload, {"iban"})

    assert time.process_time() - started < 3
