"""Models of payloads: what is stored of an instance, what is read, and what an error may say."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator

from reliq.domain.payload import PayloadModel, plain
from reliq.errors import PermanentError, TemporaryError

SECRET = "hunter2-hunter2"
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Paid:
    order: int
    at: datetime = NOON
    tags: tuple[str, ...] = ()
    pause: timedelta = timedelta(0)


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    payload_version: ClassVar[int] = 3

    number: int = Field(gt=0, alias="orderNumber")
    at: datetime = NOON
    pin: str = "0000"

    @field_validator("pin")
    @classmethod
    def must_be_short(cls, pin: str) -> str:
        if len(pin) > 4:
            raise ValueError(f"{pin} is too long")
        return pin


def since_1(fields: dict[str, Any], version: int) -> dict[str, Any]:
    assert version < Order.payload_version
    if version == 1:
        fields = {"orderNumber": int(fields["no"])}
    return fields


@pytest.mark.parametrize(
    "made",
    [
        Paid(7, NOON, ("a", "b"), timedelta(seconds=90)),
        Order(orderNumber=7, at=NOON, pin="1234"),
    ],
    ids=["dataclass", "pydantic"],
)
def test_what_is_stored_of_an_instance_is_read_as_the_same(made: Any) -> None:
    assert PayloadModel(type(made)).read(plain(made)) == made


def test_an_instance_is_stored_with_the_version_of_its_model_unless_it_is_the_first() -> None:
    assert plain(Paid(7)) == {"order": 7, "at": "2026-11-30T12:00:00Z", "tags": [], "pause": "PT0S"}
    assert plain(Order(orderNumber=7))["payload_version"] == 3


@pytest.mark.parametrize("thing", [7, "text", [1], None, Paid, Order, RootModel[int](3)])
def test_what_has_no_fields_is_no_payload(thing: Any) -> None:
    with pytest.raises(ValueError, match="the payload of a job"):
        plain(thing)


def test_an_older_version_is_upgraded_and_the_newest_is_not() -> None:
    model = PayloadModel(Order, since_1)

    assert model.read({"no": "7"}) == Order(orderNumber=7)
    assert model.read({"orderNumber": 7, "payload_version": 2}) == Order(orderNumber=7)
    assert model.read({"orderNumber": 7, "payload_version": 3}) == Order(orderNumber=7)


def test_without_an_upgrade_an_older_version_is_read_as_it_is() -> None:
    assert PayloadModel(Order).read({"orderNumber": 7}) == Order(orderNumber=7)


def test_a_newer_version_waits_for_a_newer_program() -> None:
    with pytest.raises(TemporaryError, match=r"of version 4, and Order here is of version 3"):
        PayloadModel(Order, since_1).read({"x": 1, "payload_version": 4})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"orderNumber": SECRET}, "orderNumber is wrong (int_type)"),
        ({}, "orderNumber is missing"),
        ({"orderNumber": 0}, "orderNumber is wrong (greater_than)"),
        ({"orderNumber": 7, "pin": SECRET}, "pin is wrong (value_error)"),
        ({"orderNumber": 7, "at": SECRET}, "at is wrong (datetime_parsing)"),
        ({"orderNumber": 7, "colour": SECRET}, "colour is no field of it"),
        ({"orderNumber": 7, "payload_version": SECRET}, "payload_version counts from 1"),
        ({"orderNumber": 7, "payload_version": True}, "payload_version counts from 1"),
    ],
)
def test_a_payload_that_does_not_fit_is_dead_and_its_error_names_the_field_alone(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(PermanentError) as caught:
        PayloadModel(Order).read(fields)

    assert str(caught.value) == f"the payload does not fit Order: {said}"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_of_many_wrong_fields_the_first_are_named() -> None:
    fields = dict.fromkeys("abcdefg", 1) | {"orderNumber": 7}

    with pytest.raises(PermanentError, match=r"e is no field of it and 2 more$"):
        PayloadModel(Order).read(fields)


@pytest.mark.parametrize("model", [dict, int, "Order", Paid(7), None])
def test_what_is_no_model_is_refused_at_once(model: Any) -> None:
    with pytest.raises(TypeError, match="a dataclass or a pydantic model"):
        PayloadModel(model)


@pytest.mark.parametrize("version", ["2", 0, True, None])
def test_a_version_counts_from_one(version: Any) -> None:
    model = type("Odd", (Order,), {"payload_version": version, "__annotations__": {}})

    with pytest.raises(TypeError, match=r"Odd\.payload_version counts from 1"):
        PayloadModel(model)


def test_a_default_of_a_dataclass_that_is_made_is_no_trouble() -> None:
    @dataclass
    class Many:
        n: list[int] = field(default_factory=list)

    assert PayloadModel(Many).read({"n": [1, 2]}) == Many([1, 2])
