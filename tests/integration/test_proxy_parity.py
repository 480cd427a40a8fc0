"""Through our proxy a client sees what it sees through Toxiproxy, of links and of the API."""

from collections.abc import Mapping

import anyio
import httpx
import pytest

from reliq.scenario.stage.network import Network
from tests.fixtures.network import HELLO, Upstream, connected, echoing, linked, real, say

pytestmark = pytest.mark.anyio


async def latency(network: Network, port: int, _: Upstream) -> object:
    seen = []
    for stream in ("upstream", "downstream"):
        fault = await network.add("db", "latency", {"latency": 80}, stream)
        *seen_now, took = await say(port)
        await network.remove(fault)
        *seen_later, _ = await say(port)
        seen.append((seen_now, took >= 0.08, seen_later))
    return seen


async def silence(network: Network, port: int, upstream: Upstream) -> object:
    seen = []
    for stream in ("upstream", "downstream"):
        fault = await network.add("db", "timeout", {"timeout": 0}, stream)
        async with connected(port) as client:
            await client.send(HELLO)
            await client.read(5, 0.3)
            seen.append((bytes(client.received), client.ending))
            client.ending = "open"
            await network.remove(fault)
            await client.read()
            seen.append((bytes(client.received), client.ending))
        seen.append(await upstream.heard(len(seen) // 3 + 1))
    return seen


async def timeout(network: Network, port: int, _: Upstream) -> object:
    await network.add("db", "timeout", {"timeout": 100})
    *seen, took = await say(port)
    return seen, took >= 0.1


async def reset_peer(network: Network, port: int, _: Upstream) -> object:
    seen = []
    for stream in ("upstream", "downstream"):
        fault = await network.add("db", "reset_peer", {"timeout": 50}, stream)
        *seen_now, took = await say(port)
        await network.remove(fault)
        *seen_later, _ = await say(port)
        seen.append((seen_now, took >= 0.05, seen_later))
    return seen


async def limit_data(network: Network, port: int, upstream: Upstream) -> object:
    seen, number = [], 0
    for stream in ("upstream", "downstream"):
        for limit in (0, 3, 5, 9):
            fault = await network.add("db", "limit_data", {"bytes": limit}, stream)
            received, ending, _ = await say(port, n=5 if limit > 5 else 6)
            # What was let through upstream may come back before the end, or just not.
            if stream == "downstream":
                seen.append(received)
            number += 1
            seen.append((ending, await upstream.heard(number)))
            await network.remove(fault)
    return seen


async def down(network: Network, port: int, _: Upstream) -> object:
    async with connected(port) as client:
        await client.send(HELLO)
        await client.read(5)
        await network.down("db")
        *refused, _ = await say(port)
        await client.read()
        await network.up("db")
        *later, _ = await say(port)
        return bytes(client.received), client.ending, refused, later


async def live(network: Network, port: int, _: Upstream) -> object:
    """Toxics that come while a connection is there act on it."""
    seen = []
    for toxic, attributes in {
        "latency": {"latency": 80}, "limit_data": {"bytes": 2}, "timeout": {"timeout": 50},
    }.items():  # fmt: skip
        async with connected(port) as client:
            await client.send(HELLO)
            await client.read(5)
            fault = await network.add("db", toxic, attributes)
            await client.send(HELLO)
            await client.read(10)
            seen.append((toxic, bytes(client.received), client.ending))
            await network.remove(fault)
    return seen


async def nobody_there(network: Network, _: int, upstream: Upstream) -> object:
    async with echoing() as other:
        gone = other.port
    port = await network.link("gone", "127.0.0.1", gone)
    async with connected(port) as client:
        await client.read()
        return client.ending


async def half_closed(network: Network, port: int, upstream: Upstream) -> object:
    """A client that has said all it had to say hears no more: the end cuts both ways."""
    await network.add("db", "latency", {"latency": 50}, "upstream")
    async with connected(port) as client:
        await client.send(HELLO)
        await client.stream.send_eof()
        await client.read()
        return client.ending, await upstream.heard(1)


@real
@pytest.mark.parametrize(
    "scenario",
    [latency, silence, timeout, reset_peer, limit_data, down, live, nobody_there, half_closed],
    ids=lambda scenario: scenario.__name__,
)
async def test_a_client_sees_the_same_through_toxiproxy(scenario, servers):
    seen = []
    for server in servers.values():
        async with linked(server) as (network, port, upstream):
            with anyio.fail_after(60):
                seen.append(await scenario(network, port, upstream))

    assert seen[0] == seen[1]


PROXY = {"name": "x", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:1"}
REQUESTS = [
    ("GET", "/proxies/none", None),
    ("POST", "/proxies", {"upstream": "127.0.0.1:1"}),
    ("POST", "/proxies", {"name": "x"}),
    ("POST", "/proxies", PROXY),
    ("POST", "/proxies", PROXY),
    ("POST", "/proxies", {**PROXY, "name": "off", "enabled": False}),
    ("POST", "/populate", [{"name": "y"}]),
    ("POST", "/populate", [{"upstream": "127.0.0.1:1"}]),
    ("POST", "/populate", [{**PROXY, "name": "y"}, {**PROXY, "name": "z", "enabled": False}]),
    ("GET", "/proxies/x", None),
    ("GET", "/proxies/x/toxics", None),
    ("POST", "/proxies/x/toxics", {"type": "nothing"}),
    ("POST", "/proxies/x/toxics", {"type": "latency", "stream": "sideways"}),
    ("POST", "/proxies/x/toxics", {"type": "latency", "attributes": {"latency": 5, "seed": 1}}),
    ("POST", "/proxies/x/toxics", {"type": "latency"}),
    ("POST", "/proxies/x/toxics", {"type": "slicer", "name": "s", "stream": "upstream"}),
    ("POST", "/proxies/none/toxics", {"type": "latency"}),
    ("PATCH", "/proxies/x/toxics/latency_downstream", {"attributes": {"jitter": 2}}),
    ("POST", "/proxies/x/toxics/latency_downstream", {"toxicity": 0.5}),
    ("GET", "/proxies/x/toxics/latency_downstream", None),
    ("GET", "/proxies/x/toxics/none", None),
    ("PATCH", "/proxies/x/toxics/none", {}),
    ("DELETE", "/proxies/x/toxics/none", None),
    ("GET", "/proxies", None),
    ("PATCH", "/proxies/x", {"enabled": False}),
    ("POST", "/reset", None),
    ("GET", "/proxies", None),
    ("POST", "/proxies/x/toxics", {"type": "slow_close"}),
    ("DELETE", "/proxies/x/toxics/slow_close_downstream", None),
    ("DELETE", "/proxies/x", None),
    ("DELETE", "/proxies/x", None),
    ("DELETE", "/proxies", None),
    ("GET", "/nothing", None),
]


def shown(value: object) -> object:
    """Leave out what only one of the two tells, and ports, which are chosen."""
    match value:
        case Mapping():
            only = {"Logger", "hits", "connections"}
            return {
                name: shown(item) if name != "listen" else str(item).rpartition(":")[0]
                for name, item in value.items()
                if name not in only
            }
        case list():
            return [shown(item) for item in value]
        case _:
            return value


@real
async def test_an_api_client_sees_the_same_as_at_toxiproxy(servers):
    seen = []
    for network in servers.values():
        address = f"http://127.0.0.1:{network.server.port}"
        async with httpx.AsyncClient(base_url=address, trust_env=False) as client:
            answers = [await client.request(m, path, json=body) for m, path, body in REQUESTS]
            for name in ("off", "y", "z"):
                await client.delete(f"/proxies/{name}")
        seen.append([
            (asked, answer.status_code, shown(answer.json() if answer.text.startswith(("{", "[")) else ""))
            for asked, answer in zip(REQUESTS, answers, strict=True)
        ])  # fmt: skip

    for ours, theirs in zip(*seen, strict=True):
        assert ours == theirs
