"""Sealing: what goes in comes out, nothing of it is in between, and keys are told apart."""

import base64
import json
import sys
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq.domain.job import Claim, Fence, JobId, Kind, NewJob, check_job
from reliq.domain.sealed import MARK, read_keys
from reliq.errors import ConfigInvalid, KeyUnknown, TemporaryError
from reliq.sealing import Sealing, opened

OLD, NEW = (base64.urlsafe_b64encode(bytes([n]) * 32).decode() for n in (1, 2))
FIELDS = {"iban", "card"}
OF_OLD, OF_BOTH, OF_NEW = (
    Sealing(keys, FIELDS) for keys in (f"2026a:{OLD}", f"2026b:{NEW}, 2026a:{OLD}", f"2026b:{NEW}")
)
IBAN = "DE89370400440532013000"
PAYLOAD = json.dumps({"n": 1, "payer": [{"iban": IBAN, "name": "Ann"}], "card": {"no": 4711}})

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["iban", "card", "name", "$sealed"]) | texts, inner
    ),
    max_leaves=12,
)  # fmt: skip
payloads = st.dictionaries(st.sampled_from(["iban", "n", "$sealed"]) | texts, values)


def claim(payload: str) -> Claim:
    return Claim(
        JobId(7), Fence(1), Kind("pay"), "k", payload, 1, 8, 0, None, timedelta(0)
    )  # fmt: skip


@given(payloads)
def test_what_is_sealed_comes_out_as_it_went_in_whatever_it_looked_like(payload):
    sealed = OF_BOTH.seal(json.dumps(payload))

    assert json.loads(OF_NEW.open(sealed)) == payload
    assert json.loads(OF_NEW.open(OF_BOTH.reseal(sealed))) == payload


def test_named_fields_are_sealed_at_any_depth_and_the_rest_can_be_read():
    sealed = OF_OLD.seal(PAYLOAD)

    found = json.loads(sealed)
    assert found["payer"][0]["iban"]["$sealed"].startswith("2026a:gAAAA")
    assert found["card"]["$sealed"].startswith("2026a:gAAAA")
    assert (found["n"], found["payer"][0]["name"]) == (1, "Ann")
    assert IBAN not in sealed
    assert "4711" not in sealed


def test_null_is_not_sealed_and_a_payload_of_any_depth_is():
    assert json.loads(OF_OLD.seal('{"iban": null}')) == {"iban": None}
    deep = json.loads('{"a": ' * 300 + '{"iban": "x"}' + "}" * 300)
    assert json.loads(OF_OLD.open(OF_OLD.seal(json.dumps(deep)))) == deep


def test_a_job_is_sealed_on_its_way_to_the_tables_and_only_if_asked():
    job = NewJob(kind="pay", payload={"iban": IBAN})

    assert IBAN in check_job(job)
    assert IBAN not in check_job(job, OF_OLD)


def test_a_key_is_changed_and_what_names_the_newest_stays_as_it_is():
    sealed = OF_OLD.seal(PAYLOAD)

    anew = OF_BOTH.reseal(sealed)

    assert "2026a:" not in anew
    assert json.loads(OF_NEW.open(anew)) == json.loads(PAYLOAD)
    assert OF_BOTH.reseal(anew) == anew
    assert "2026b:" in OF_BOTH.reseal(PAYLOAD)


def test_what_cannot_be_opened_names_field_and_key_and_no_value():
    with pytest.raises(KeyUnknown, match=r"^card is sealed with key '2026a', which is not among"):
        OF_NEW.open(OF_OLD.seal('{"card": 1}'))
    impostor = Sealing(f"2026a:{NEW}", FIELDS)
    with pytest.raises(KeyUnknown, match=r"^iban does not open with key '2026a'"):
        impostor.open(OF_OLD.seal('{"iban": 1}'))
    with pytest.raises(KeyUnknown, match="iban does not open"):
        OF_OLD.open('{"iban": {"$sealed": "2026a:gAAAAAchanged"}}')


@pytest.mark.parametrize("sealing", [None, OF_NEW])
def test_a_job_that_cannot_be_opened_is_to_be_tried_again_and_says_what_to_do(sealing):
    with pytest.raises(TemporaryError) as raised:
        opened(claim(OF_OLD.seal(PAYLOAD)), sealing)

    said = str(raised.value)
    assert said.startswith("job 7 did not run: of its payload ")
    assert "RELIQ_ENCRYPTION_KEYS" in said
    assert "`reliq retry 7`" in said


def test_a_claim_is_opened_for_its_handler():
    assert opened(claim(OF_OLD.seal(PAYLOAD)), OF_BOTH).payload == json.loads(PAYLOAD)


@pytest.mark.parametrize("sealing", [None, OF_BOTH])
@pytest.mark.parametrize(
    "value",
    [
        1,
        "yes",
        "2026a:",
        "2026a:yes",
        ":gAAAAAx",
        "a b:gAAAAAx",
        "2026a:gAAAAA\u00e4",
        ["2026a:gAAAAAx"],
    ],
)
def test_only_what_is_a_key_and_a_token_is_taken_for_sealed(sealing, value):
    for payload in ({"$sealed": value}, {"form": {"$sealed": value}, "iban": None}):
        assert opened(claim(json.dumps(payload)), sealing).payload == payload
    beside = {"form": {"$sealed": "2026a:gAAAAAx", "n": 1}, "text": '{"$sealed": "2026a:gAAAAAx"}'}
    assert opened(claim(json.dumps(beside)), sealing).payload == beside


def test_what_is_nested_too_deep_to_be_read_for_certain_is_refused():
    def deep(levels: int) -> str:
        return '{"text": "]]}}\\"{{[[", "iban": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}"

    assert json.loads(OF_OLD.open(OF_OLD.seal(deep(400)))) == json.loads(deep(400))
    for change in (OF_OLD.seal, OF_BOTH.reseal):
        for levels in (401, 970, 100_000):
            with pytest.raises(ValueError, match=f"at most 400 deep, not {levels}"):
                change(deep(levels))
    with pytest.raises(ValueError, match="at most 400 deep"):
        check_job(NewJob(kind="pay", payload=json.loads(deep(500))), OF_OLD)
    wide = json.dumps({"iban": [[]] * 1_000})
    assert json.loads(OF_OLD.open(OF_OLD.seal(wide))) == json.loads(wide)


def test_the_mark_is_in_no_text_of_a_payload():
    assert MARK not in json.dumps({"text": '{"$sealed": "x"}', "$sealed x": 1})
    assert MARK in OF_OLD.seal('{"iban": 1}')


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("", "key 1 has no id"),
        (NEW, "key 1 has no id"),
        (f"2026b:{NEW},", "key 2 has no id"),
        (f"a b:{NEW}", "key 1 has no id"),
        ("2026b:hunter2", "the key 2026b is no Fernet key"),
        (f"2026b:{NEW[:-2]}", "the key 2026b is no Fernet key"),
        (f"2026b:{NEW},2026b:{OLD}", "two keys have the id 2026b"),
    ],
)
def test_keys_that_are_written_wrong_are_refused_without_being_quoted(keys, said):
    with pytest.raises(ValueError, match=said) as raised:
        read_keys(keys)

    assert "hunter2" not in str(raised.value)
    assert NEW not in str(raised.value)


def test_keys_are_in_no_picture_of_a_sealing():
    assert OLD not in repr(OF_BOTH)
    assert NEW not in repr(OF_BOTH)
    assert (OF_BOTH.newest, list(read_keys(OF_BOTH.keys))) == ("2026b", ["2026b", "2026a"])


def test_keys_without_the_package_are_a_wrong_configuration(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.fernet", None)

    with pytest.raises(ConfigInvalid, match="install reliq with its extra `encryption`"):
        Sealing(f"2026a:{OLD}", FIELDS)
