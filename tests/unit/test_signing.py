"""Signatures of what is sent, verified by the package that receivers use."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from reliq.domain.signing import SECRET_BYTES, message_id, secret_of, signed

NOW = datetime.now(UTC)  # noqa: TID251 - the receiver's package reads the clock, too
OLD, NEW = (secret_of(bytes([n]) * SECRET_BYTES) for n in (1, 2))
BODY = '{"type":"order.paid","data":"ü"}'.encode()


@pytest.fixture(autouse=True)
def _now(monkeypatch):
    """The receiver's package reads the clock, and a run of all tests takes longer than it forgives."""
    monkeypatch.setitem(globals(), "NOW", datetime.now(UTC))  # noqa: TID251


@given(st.text().filter(str.isprintable), st.binary(min_size=24, max_size=64))
def test_what_is_signed_is_verified_by_the_receivers_package(text, raw):
    secret, body = secret_of(raw), f'{{"data": "{len(text)}"}}'.encode()

    Webhook(secret).verify(body, signed([secret], "msg_1", NOW, body))


def test_while_a_secret_is_changed_both_verify_and_nothing_else_does():
    headers = signed([NEW, OLD], "msg_1", NOW, BODY)

    Webhook(NEW).verify(BODY, headers)
    Webhook(OLD).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_of(b"3" * SECRET_BYTES)).verify(BODY, headers)
    assert len(headers["webhook-signature"].split(" ")) == 2


@pytest.mark.parametrize(
    "changed",
    [{"webhook-id": "msg_2"}, {"webhook-timestamp": str(int(NOW.timestamp()) + 1)}],
)
def test_the_id_and_the_time_are_signed_as_well(changed):
    headers = {**signed([NEW], "msg_1", NOW, BODY), **changed}

    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY, headers)


def test_the_known_vector_of_the_specification():
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    at = datetime.fromtimestamp(1614265330, UTC)

    headers = signed([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}')

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_message_is_named_by_its_job_and_when_that_was_enqueued():
    first = message_id("order-7", NOW)

    assert first == message_id("order-7", NOW)
    assert len(first) == len("msg_") + 26
    assert first.isascii()
    assert first.replace("_", "").isalnum()
    others = {message_id("order-8", NOW), message_id("order-7", NOW + timedelta(microseconds=1)),
              message_id("\ud800", NOW)}  # fmt: skip
    assert len({first, *others}) == 4


@pytest.mark.parametrize("secret", ["hunter2", "whsec_not base64!", "whsec_ÿ"])
def test_a_secret_that_is_none_is_refused_and_not_quoted(secret):
    with pytest.raises(ValueError, match="a secret of an endpoint") as refused:
        signed([secret], "msg_1", NOW, BODY)
    assert secret not in str(refused.value)
