"""Durations of a scenario file: real ones, and multiples of a setting of the product."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

from reliq.domain.duration import format_duration, parse_duration

UNITS: Final = ("lease", "poll", "reap", "slot", "backoff", "grace")
"""Settings of the product that a length may be a multiple of."""

_REAL: Final = r"(?:\d+(?:\.\d+)?(?:us|ms|s|m|h|d))+"
_LENGTH: Final = re.compile(rf"(\d+(?:\.\d+)?)\s*\*\s*({'|'.join(UNITS)})(?:\s*\+\s*({_REAL}))?")
_HOW: Final = "write it with its unit, as 40ms, 2s or 5m"


class Strict(BaseModel):
    """A part of the file: no unknown keys, no guessing of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _real(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str) or value.strip().replace(".", "").isdigit():
        raise ValueError(f"{value!r} is no duration: {_HOW}")
    try:
        return parse_duration(value)
    except ValueError as error:
        more = ", and no multiple here" if "*" in value else ""
        raise ValueError(f"{value!r} is no duration: {_HOW}{more}") from error


Real = Annotated[
    timedelta,
    BeforeValidator(_real),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    Field(json_schema_extra={"type": "string", "pattern": f"^{_REAL}$", "format": "string"}),
]


@dataclass(frozen=True, slots=True)
class Length:
    """So many times a setting of the product, and a real duration on top."""

    factor: float = 0.0
    unit: str | None = None
    plus: timedelta = timedelta(0)

    @classmethod
    def parse(cls, value: object) -> "Length":
        """
        Read `2.5*lease`, `2*lease + 50ms` or `40ms`.

        Raises:
            ValueError: it is none of these.

        """
        if isinstance(value, Length):
            return value
        if isinstance(value, str) and (found := _LENGTH.fullmatch(value.strip())):
            plus = parse_duration(found[3]) if found[3] else timedelta(0)
            return cls(float(found[1]), found[2], plus)
        try:
            return cls(plus=_real(value))
        except ValueError as error:
            raise ValueError(
                f"{value!r} is no length: {_HOW}, or as 2.5*lease ({', '.join(UNITS)})"
            ) from error

    def seconds(self, units: Mapping[str, float]) -> float:
        """Return the real seconds, given those of each unit."""
        return self.plus.total_seconds() + (self.factor * units[self.unit] if self.unit else 0.0)

    @override
    def __str__(self) -> str:
        parts = [f"{self.factor:g}*{self.unit}"] if self.unit else []
        if self.plus or not parts:
            parts.append(format_duration(self.plus))
        return " + ".join(parts)

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        units = "|".join(UNITS)
        return {
            "type": "string",
            "description": "a real duration, or a multiple of a product setting",
            "pattern": rf"^({_REAL}|\d+(\.\d+)?\s*\*\s*({units})(\s*\+\s*{_REAL})?)$",
        }


ZERO: Final = Length()
