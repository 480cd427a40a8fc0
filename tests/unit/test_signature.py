import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from reliq.domain.event import Delivery
from reliq.domain.signature import (
    GITHUB,
    SITE,
    TELEGRAM,
    Genuine,
    Hmac,
    Refused,
    Scheme,
    Token,
    check_secrets,
    verify,
)

VECTORS = Path(__file__).parents[1] / "vectors"
SCHEMES: dict[str, Scheme] = {"github": GITHUB, "telegram": TELEGRAM}
SECRET, BODY = b"one of ours", b'{"order": 1}'

schemes = st.sampled_from([SITE, GITHUB, TELEGRAM, Hmac(header="X-Signature", prefix="v0:")])
secrets = st.binary(min_size=1, max_size=40).filter(lambda secret: secret.strip() != b"")


def vectors(name: str) -> list[Any]:
    rows = json.loads((VECTORS / f"{name}.json").read_text("utf-8"))
    return [pytest.param(row, id=row["id"]) for row in rows]


def delivery(*headers: tuple[str, bytes], body: bytes = BODY) -> Delivery:
    return Delivery(
        source="site",
        headers=[(name.lower().encode(), value) for name, value in headers],
        body=body,
    )


def proof(scheme: Scheme, secret: bytes = SECRET, body: bytes = BODY) -> bytes:
    if isinstance(scheme, Token):
        return secret
    return scheme.prefix.encode() + hmac.new(secret, body, hashlib.sha256).hexdigest().encode()


@pytest.mark.parametrize("vector", [*vectors("github"), *vectors("telegram")])
def test_a_published_vector_is_judged_as_published(vector: Any) -> None:
    arrived = delivery(
        *((name, value.encode("latin-1")) for name, value in vector["headers"]),
        body=base64.b64decode(vector["body_base64"]),
    )
    keys = [secret.encode() for secret in vector["secrets"]]

    verdict = verify(SCHEMES[vector["scheme"]], keys, arrived)

    assert isinstance(verdict, Genuine) == (vector["expect"] == "accept")


def test_the_vectors_hold_both_verdicts_of_both_schemes() -> None:
    rows = [param.values[0] for name in SCHEMES for param in vectors(name)]

    kinds = {(row["scheme"], row["expect"]) for row in rows}
    assert kinds == {(name, verdict) for name in SCHEMES for verdict in ("accept", "reject")}
    assert len(rows) == 30


@pytest.mark.parametrize(
    ("scheme", "headers", "reason"),
    [
        (SITE, [], "missing"),
        (SITE, [("X-Signature", proof(SITE))] * 2, "repeated"),
        (SITE, [("X-Signature", b"")], "malformed"),
        (SITE, [("X-Signature", proof(SITE)[:-1])], "malformed"),
        (GITHUB, [("X-Hub-Signature-256", proof(SITE))], "malformed"),
        (GITHUB, [("X-Hub-Signature-256", b"SHA256=" + proof(SITE))], "malformed"),
        (SITE, [("X-Signature", proof(SITE).upper())], "mismatch"),
        (SITE, [("X-Signature", proof(SITE) + b"\xa0")], "malformed"),
        (SITE, [("X-Signature", proof(SITE, b"another"))], "mismatch"),
        (TELEGRAM, [], "missing"),
        (TELEGRAM, [(TELEGRAM.header, SECRET)] * 2, "repeated"),
        (TELEGRAM, [(TELEGRAM.header, SECRET[:-1])], "mismatch"),
    ],
)
def test_a_refusal_says_why(scheme: Scheme, headers: list[tuple[str, bytes]], reason: str) -> None:
    assert verify(scheme, [SECRET], delivery(*headers)) == Refused(reason)


def test_spaces_and_tabs_around_the_value_are_no_part_of_it() -> None:
    arrived = delivery(("X-Signature", b" \t" + proof(SITE) + b"\t "))

    assert verify(SITE, [SECRET], arrived) == Genuine(0)


@pytest.mark.parametrize("scheme", [SITE, GITHUB, TELEGRAM])
def test_the_verdict_names_the_secret_that_matched(scheme: Scheme) -> None:
    arrived = delivery((scheme.header, proof(scheme)))

    assert verify(scheme, [b"new", SECRET, b"older"], arrived) == Genuine(1)
    assert verify(scheme, [b"new"], arrived) == Refused("mismatch")
    assert verify(scheme, [], arrived) == Refused("mismatch")


@pytest.mark.parametrize("blank", [b"", b" ", b"\t\r\n"])
@pytest.mark.parametrize("scheme", [SITE, GITHUB, TELEGRAM])
def test_a_blank_secret_opens_no_door(scheme: Scheme, blank: bytes) -> None:
    arrived = delivery((scheme.header, proof(scheme, blank)))

    assert isinstance(verify(scheme, [blank], arrived), Refused)
    with pytest.raises(ValueError, match="secret 1 is blank"):
        check_secrets([SECRET, blank])


def test_secrets_that_cannot_work_are_refused_without_being_shown() -> None:
    assert check_secrets([b"a", b"b"]) == (b"a", b"b")
    with pytest.raises(ValueError, match="no secret: set at least one"):
        check_secrets([])
    with pytest.raises(ValueError, match="secret 0 ends in a line break") as caught:
        check_secrets([b"hush\n"])
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: Hmac(header=""), "header=''"),
        (lambda: Hmac(header=b"X"), "header=b'X'"),
        (lambda: Hmac(header="X", prefix=1), "prefix=1"),
        (lambda: Token(header=None), "header=None"),
        (lambda: Token(header="X Signature"), "header='X Signature'"),
        (lambda: Token(header="X-Sïgnature"), "write a header's name"),
        (lambda: Hmac(header="X", prefix="é="), "prefix='é='"),
        (lambda: Hmac(header="X", prefix=" v1="), "without a leading space"),
        (lambda: Hmac(header="X", digest="md5"), "digest='md5'"),
        (lambda: Hmac(header="X", encoding="base32"), "encoding='base32'"),
    ],
)
def test_a_scheme_that_cannot_work_is_refused_with_its_value(build, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        build()


@given(scheme=schemes, secret=secrets, body=st.binary())
def test_what_was_signed_with_our_secret_is_genuine(
    scheme: Scheme, secret: bytes, body: bytes
) -> None:
    assume(isinstance(scheme, Hmac) or secret.strip(b" \t") == secret)
    arrived = delivery((scheme.header, proof(scheme, secret, body)), body=body)

    assert verify(scheme, [secret], arrived) == Genuine(0)


@given(body=st.binary(min_size=1), data=st.data())
def test_any_changed_byte_of_the_body_is_refused(body: bytes, data: st.DataObject) -> None:
    changed = bytearray(body)
    changed[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))

    arrived = delivery((GITHUB.header, proof(GITHUB, body=body)), body=bytes(changed))

    assert verify(GITHUB, [SECRET], arrived) == Refused("mismatch")


@given(scheme=schemes, data=st.data())
def test_any_changed_byte_of_the_proof_is_refused(scheme: Scheme, data: st.DataObject) -> None:
    changed = bytearray(proof(scheme))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))

    verdict = verify(scheme, [SECRET], delivery((scheme.header, bytes(changed))))

    assert isinstance(verdict, Refused)


@given(
    scheme=schemes,
    keys=st.lists(st.binary(max_size=20), max_size=3),
    values=st.lists(st.binary(max_size=90), max_size=3),
    body=st.binary(),
)
@example(scheme=SITE, keys=[SECRET], values=[b"\xff" * 64], body=b"\xff\xfe\0")
def test_no_bytes_whatever_raise(
    scheme: Scheme, keys: list[bytes], values: list[bytes], body: bytes
) -> None:
    arrived = delivery(*((scheme.header, value) for value in values), body=body)

    assert isinstance(verify(scheme, keys, arrived), Genuine | Refused)
