"""The JSON Schema of scenario files, for editors."""

import json
from typing import Any, Final

from reliq.scenario import invariants
from reliq.scenario.model import Scenario

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_FILLED: Final = {"type": "string", "pattern": r"^\$\{[^{}]*\}$"}
_NUMBERS: Final = frozenset({"integer", "number"})


def schema() -> str:
    """Return the schema, with every invariant's name and promise."""
    found = Scenario.model_json_schema(by_alias=True)
    known = invariants.load()
    names = [{"const": name, "description": known[name].promise} for name in sorted(known)]
    with_parameters = {
        "type": "object", "minProperties": 1, "maxProperties": 1,
        "properties": {name: {"type": "object"} for name in sorted(known)},
        "additionalProperties": False,
    }  # fmt: skip
    found["$defs"]["Expect"]["properties"]["always"]["items"] = {
        "anyOf": [{"oneOf": names}, with_parameters]
    }
    return json.dumps({"$schema": DIALECT, **_fillable(found)}, indent=2) + "\n"


def _fillable(part: Any) -> Any:
    """Let `${…}` stand wherever a number is wanted."""
    match part:
        case dict() if part.get("type") in _NUMBERS:
            about = {
                name: part[name] for name in ("title", "description", "default") if name in part
            }
            return {**about, "anyOf": [{k: v for k, v in part.items() if k not in about}, _FILLED]}
        case dict():
            return {name: _fillable(value) for name, value in part.items()}
        case list():
            return [_fillable(value) for value in part]
        case _:
            return part
