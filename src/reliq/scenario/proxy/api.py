"""
Toxiproxy's HTTP API, as far as it is used here.

Codes, bodies and the order of checks are the original's; what stands after the colon in "bad
request body: …" is not. Of its own: `seed`, among a toxic's attributes (the original ignores it
there) or for all toxics to come by `POST /seed`; `hits` and `connections` in the answers.
"""

from dataclasses import dataclass, field
from importlib.metadata import version

from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from reliq.scenario.proxy.behaviours import BEHAVIOURS
from reliq.scenario.proxy.body import (
    STREAMS,
    Fields,
    Refused,
    behave,
    read_body,
    read_fields,
    show,
    show_toxic,
    take,
    told,
)
from reliq.scenario.proxy.server import Proxy
from reliq.scenario.proxy.toxic import Toxic


@dataclass(slots=True)
class Api:
    """All proxies of the server, by name, and what can be asked of them."""

    tasks: TaskGroup
    seed: int
    proxies: dict[str, Proxy] = field(default_factory=dict)

    def app(self) -> Starlette:
        """Make the application."""
        one, toxics = "/proxies/{proxy}", "/proxies/{proxy}/toxics"
        change = ["POST", "PATCH"]
        return Starlette(
            routes=[
                Route("/version", self.version, methods=["GET"]),
                Route("/seed", self.sow, methods=["POST"]),
                Route("/reset", self.reset, methods=["POST"]),
                Route("/populate", self.populate, methods=["POST"]),
                Route("/proxies", self.list, methods=["GET"]),
                Route("/proxies", self.create, methods=["POST"]),
                Route(one, self.show, methods=["GET"]),
                Route(one, self.update, methods=change),
                Route(one, self.delete, methods=["DELETE"]),
                Route(toxics, self.list_toxics, methods=["GET"]),
                Route(toxics, self.add_toxic, methods=["POST"]),
                Route(toxics + "/{toxic}", self.show_toxic, methods=["GET"]),
                Route(toxics + "/{toxic}", self.update_toxic, methods=change),
                Route(toxics + "/{toxic}", self.delete_toxic, methods=["DELETE"]),
            ],
            exception_handlers={Refused: _refuse, OSError: _refuse},
        )

    async def version(self, _: Request) -> Response:
        """Answer with the version of ours."""
        return JSONResponse({"version": f"reliq-{version('reliq')}"})

    async def sow(self, request: Request) -> Response:
        """Set the seed of the toxics to come."""
        self.seed = take(await read_fields(request), "seed", int, self.seed)
        return Response(status_code=204)

    async def reset(self, _: Request) -> Response:
        """Enable all proxies and take all toxics away."""
        for proxy in self.proxies.values():
            proxy.start()
            proxy.heal()
        return Response(status_code=204)

    async def list(self, _: Request) -> Response:
        """Show all proxies."""
        return JSONResponse({name: show(proxy) for name, proxy in self.proxies.items()})

    async def create(self, request: Request) -> Response:
        """Make a proxy; it listens, unless `enabled` is false."""
        given = await read_fields(request)
        proxy, enabled = self._read(given)
        if proxy.name in self.proxies:
            raise Refused(409, "proxy already exists")
        self._enter(proxy, enabled=enabled)
        return JSONResponse(show(proxy), 201)

    async def populate(self, request: Request) -> Response:
        """Make many proxies, in the place of those with the same name that are different."""
        given = await read_body(request)
        if not isinstance(given, list):
            raise Refused(400, "bad request body: not a list")
        try:
            wanted = [self._read(item, f" at proxy {n}") for n, item in enumerate(given, 1)]
        except Refused as error:
            return JSONResponse({**told(error), "proxies": None}, error.code)
        shown = []
        for proxy, enabled in wanted:
            there = self.proxies.get(proxy.name)
            if there is None or (there.listen, there.upstream) != (proxy.listen, proxy.upstream):
                if there is not None:
                    await there.stop()
                self._enter(proxy, enabled=enabled)
            shown.append(show(self.proxies[proxy.name]))
        return JSONResponse({"proxies": shown}, 201)

    async def show(self, request: Request) -> Response:
        """Show a proxy."""
        return JSONResponse(show(self._proxy(request)))

    async def update(self, request: Request) -> Response:
        """Enable or disable a proxy, or move one of its ends, which cuts its connections."""
        proxy, given = self._proxy(request), await read_fields(request)
        listen = take(given, "listen", str, proxy.listen)
        upstream = take(given, "upstream", str, proxy.upstream)
        enabled = take(given, "enabled", bool, proxy.enabled)
        if not enabled or (listen, upstream) != (proxy.listen, proxy.upstream):
            await proxy.stop()
            proxy.listen, proxy.upstream = listen, upstream
        if enabled:
            proxy.start()
        return JSONResponse(show(proxy))

    async def delete(self, request: Request) -> Response:
        """Take a proxy away, with all its connections."""
        proxy = self._proxy(request)
        await proxy.stop()
        self.proxies.pop(proxy.name, None)
        return Response(status_code=204)

    async def list_toxics(self, request: Request) -> Response:
        """Show the toxics of a proxy."""
        return JSONResponse(show(self._proxy(request))["toxics"])

    async def add_toxic(self, request: Request) -> Response:
        """Add a toxic."""
        proxy, given = self._proxy(request), await read_fields(request)
        kind, stream = take(given, "type", str, ""), take(given, "stream", str, "downstream")
        name = take(given, "name", str, "") or f"{kind}_{stream}"
        if stream not in STREAMS:
            raise Refused(400, "stream was invalid, can be either upstream or downstream")
        if kind not in BEHAVIOURS:
            raise Refused(400, "invalid toxic type")
        if any(toxic.name == name for toxic in proxy.toxics):
            raise Refused(409, "toxic already exists")
        attributes = take(given, "attributes", dict, {})
        toxic = Toxic(
            name=name,
            type=kind,
            stream=stream,
            toxicity=take(given, "toxicity", float, 1.0),
            behaviour=behave(BEHAVIOURS[kind](), attributes),
            seed=take(attributes, "seed", int, self.seed),
        )
        proxy.add(toxic)
        return JSONResponse(show_toxic(toxic))

    async def show_toxic(self, request: Request) -> Response:
        """Show a toxic."""
        return JSONResponse(show_toxic(_toxic(self._proxy(request), request)))

    async def update_toxic(self, request: Request) -> Response:
        """Change attributes and toxicity of a toxic; what is not named stays."""
        proxy, given = self._proxy(request), await read_fields(request)
        toxic = _toxic(proxy, request)
        behaviour = behave(toxic.behaviour, take(given, "attributes", dict, {}))
        proxy.change(toxic, behaviour, take(given, "toxicity", float, toxic.toxicity))
        return JSONResponse(show_toxic(toxic))

    async def delete_toxic(self, request: Request) -> Response:
        """Take a toxic away."""
        proxy = self._proxy(request)
        proxy.remove(_toxic(proxy, request))
        return Response(status_code=204)

    def _proxy(self, request: Request) -> Proxy:
        try:
            return self.proxies[request.path_params["proxy"]]
        except KeyError:
            raise Refused(404, "proxy not found") from None

    def _read(self, given: Fields, where: str = "") -> tuple[Proxy, bool]:
        proxy = Proxy(
            name=take(given, "name", str, ""),
            listen=take(given, "listen", str, "") or "127.0.0.1:0",
            upstream=take(given, "upstream", str, ""),
            tasks=self.tasks,
        )
        for missing in [name for name in ("name", "upstream") if not getattr(proxy, name)]:
            raise Refused(400, f"missing required field: {missing}{where}")
        return proxy, take(given, "enabled", bool, default=True)

    def _enter(self, proxy: Proxy, *, enabled: bool) -> None:
        if enabled:
            proxy.start()
        self.proxies[proxy.name] = proxy


def _toxic(proxy: Proxy, request: Request) -> Toxic:
    for toxic in proxy.toxics:
        if toxic.name == request.path_params["toxic"]:
            return toxic
    raise Refused(404, "toxic not found")


async def _refuse(_: Request, error: Exception) -> Response:
    body = told(error)
    return JSONResponse(body, body["status"])
