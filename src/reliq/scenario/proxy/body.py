"""What stands in the bodies of requests and answers."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Final, TypeVar

from starlette.requests import Request

from reliq.scenario.proxy.server import Proxy
from reliq.scenario.proxy.toxic import Behaviour, Toxic

Fields = Mapping[str, Any]
T = TypeVar("T")

STREAMS: Final = ("upstream", "downstream")


class Refused(Exception):
    """What was asked cannot be done; `code` is that of the answer."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


async def read_body(request: Request) -> Any:
    """Read JSON of any form, or refuse it."""
    try:
        return await request.json()
    except ValueError as error:
        raise Refused(400, f"bad request body: {error}") from error


async def read_fields(request: Request) -> Fields:
    """Read an object."""
    given = await read_body(request)
    if not isinstance(given, dict):
        raise Refused(400, "bad request body: not an object")
    return given


def take(given: Fields, name: str, kind: type[T], default: T) -> T:
    """Take a field; one that is missing or null is as by default."""
    value = given.get(name)
    if value is None:
        return default
    if kind is float and type(value) is int:
        value = float(value)
    # Not isinstance: true is no number here.
    if type(value) is not kind:
        raise Refused(400, f"bad request body: {name} is not of type {kind.__name__}")
    return value


def behave(behaviour: Behaviour, attributes: Fields) -> Behaviour:
    """Return it with the attributes that it knows; others are ignored."""
    names = [known.name for known in fields(behaviour)]
    given = {name: take(attributes, name, int, getattr(behaviour, name)) for name in names}
    return replace(behaviour, **given)


def show(proxy: Proxy) -> dict[str, Any]:
    """Show a proxy and its toxics, those upstream first."""
    names = ("name", "listen", "upstream", "enabled", "connections", "hits")
    toxics = sorted(proxy.toxics, key=lambda toxic: STREAMS.index(toxic.stream))
    return {name: getattr(proxy, name) for name in names} | {
        "toxics": [show_toxic(toxic) for toxic in toxics]
    }


def show_toxic(toxic: Toxic) -> dict[str, Any]:
    """Show a toxic."""
    names = ("name", "type", "stream", "toxicity", "hits")
    return {name: getattr(toxic, name) for name in names} | {"attributes": asdict(toxic.behaviour)}


def told(error: Exception) -> dict[str, Any]:
    """Tell what is wrong, and with it the code of the answer."""
    return {"error": str(error), "status": error.code if isinstance(error, Refused) else 500}
