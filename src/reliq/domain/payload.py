"""
What the payload of a kind must look like: a pydantic model or a dataclass, and its version.

A model that changed says so, `payload_version: ClassVar[int] = 2`, and an instance of it is stored
with that number beside its fields. A payload without one is of version 1. A job may have waited
since before a deployment, or come from a program that has not had it yet: `upgrade` turns what was
stored then into the fields of now.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, ClassVar, Final, Protocol

from reliq.domain.text import storable_json
from reliq.errors import PermanentError, TemporaryError

VERSION: Final = "payload_version"
"""The name of a model's version, and of the field that a payload has of it."""

NAMED_MAX: Final = 5
"""Fields that an error names."""


class Dataclass(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Pydantic(Protocol):
    """An instance of a pydantic model."""

    def model_dump_json(self) -> str:
        """Its JSON."""
        ...


Fields = Mapping[str, Any] | Dataclass | Pydantic
"""What a job can be given: a dict of JSON, or an instance of a model."""

Upgrade = Callable[[dict[str, Any], int], Mapping[str, Any]]
"""Takes fields as they were stored, and their version; returns the fields of the model."""


@dataclass(frozen=True, slots=True)
class PayloadModel:
    """
    The model of a kind's payloads, and how to read older ones.

    Raises:
        TypeError: it is no model, or its version is no number from 1.

    """

    model: type
    upgrade: Upgrade | None = None

    def __post_init__(self) -> None:
        if not is_model(self.model):
            raise TypeError(f"a payload's model is a dataclass or a pydantic model: {self.model!r}")
        if not _is_version(version := version_of(self.model)):
            raise TypeError(f"{self.model.__name__}.{VERSION} counts from 1, not {version!r}")

    def read(self, payload: Mapping[str, Any]) -> Any:
        """
        Read what was stored into an instance of the model.

        Raises:
            PermanentError: it does not fit; the message names fields and quotes no value.
            TemporaryError: it is newer than this model: made by a program that was deployed first.

        """
        name, ours = self.model.__name__, version_of(self.model)
        fields = dict(payload)
        if not _is_version(version := fields.pop(VERSION, 1)):
            raise PermanentError(f"the payload does not fit {name}: {VERSION} counts from 1")
        if version > ours:
            raise TemporaryError(
                f"the payload is of version {version}, and {name} here is of version {ours}: "
                "deploy the newer one"
            )
        if version < ours and self.upgrade is not None:
            fields = dict(self.upgrade(fields, version))
        from pydantic import ValidationError  # noqa: PLC0415 - see `_adapter`

        try:
            return _adapter(self.model).validate_json(storable_json(fields))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
        said = ", ".join(_said(each["loc"], each["type"]) for each in found[:NAMED_MAX])
        more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
        raise PermanentError(f"the payload does not fit {name}: {said}{more}")


def plain(payload: object) -> dict[str, Any]:
    """
    Turn an instance of a model into what is stored of it.

    Raises:
        ValueError: it is none, or its fields have no JSON.

    """
    model: type = type(payload)
    if not is_model(model):
        raise ValueError(
            f"the payload of a job is a dict, a dataclass or a pydantic model, not {model.__name__}"
        )
    fields = _adapter(model).dump_python(payload, mode="json", by_alias=True)
    if not isinstance(fields, dict):
        raise ValueError(f"the payload of a job has fields, and {model.__name__} has none")  # noqa: TRY004
    version = version_of(model)
    return fields if version == 1 else {**fields, VERSION: version}


def is_model(model: object) -> bool:
    """Tell a dataclass or a pydantic model from everything else, without importing pydantic."""
    return isinstance(model, type) and (is_dataclass(model) or hasattr(model, "model_fields"))


def version_of(model: type) -> Any:
    """Return the version that a model says it has; 1 where it says nothing."""
    return getattr(model, VERSION, 1)


def _is_version(version: object) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and version > 0


def _said(where: tuple[int | str, ...], what: str) -> str:
    """Say what is wrong with a field: by the sort of error, for a message may quote the value."""
    field = ".".join(map(str, where)) or "it"
    match what:
        case "missing":
            return f"{field} is missing"
        case "extra_forbidden":
            return f"{field} is no field of it"
        case _:
            return f"{field} is wrong ({what})"


@cache
def _adapter(model: type) -> Any:
    # A quarter of a second of imports, which programs without models need not wait for.
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(model)
