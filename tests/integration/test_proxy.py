"""Our proxy hurts connections as it was told, counts it, and is not to be told from Toxiproxy."""

from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import httpx
import pytest

from reliq.scenario.proxy.api import Api
from tests.fixtures.network import HELLO, Upstream, connected, echoing

pytestmark = pytest.mark.anyio

STREAMS = pytest.mark.parametrize("stream", ["upstream", "downstream"])


@dataclass
class Proxy:
    """A proxy in front of an upstream, and the API that rules it."""

    api: httpx.AsyncClient
    upstream: Upstream
    port: int = 0

    async def ask(self, method, path="", **body) -> httpx.Response:
        return await self.api.request(method, f"/proxies/p{path}", json=body)

    async def add(self, kind, *, stream="downstream", toxicity=1.0, **attributes) -> None:
        body = {"name": "t", "type": kind, "stream": stream, "toxicity": toxicity}
        answer = await self.ask("POST", "/toxics", **body, attributes=attributes)
        assert answer.status_code == 200, answer.text

    async def remove(self) -> None:
        assert (await self.ask("DELETE", "/toxics/t")).status_code == 204

    async def hits(self, of="t") -> int:
        return (await self.ask("GET")).json()["hits"].get(of, 0)

    async def until_hit(self) -> None:
        while not await self.hits():
            await anyio.sleep(0.01)


@asynccontextmanager
async def proxying(seed=7):
    async with echoing() as upstream, anyio.create_task_group() as tasks:
        transport = httpx.ASGITransport(Api(tasks, seed).app())
        async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as api:
            proxy = Proxy(api, upstream)
            body = {"name": "p", "upstream": f"127.0.0.1:{upstream.port}"}
            answer = await api.post("/proxies", json=body)
            proxy.port = int(answer.json()["listen"].rpartition(":")[2])
            yield proxy
        tasks.cancel_scope.cancel()


async def test_without_toxics_all_data_and_the_end_pass():
    data = bytes(range(256)) * 4096
    async with proxying() as proxy, connected(proxy.port) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.send, data)
            assert await client.read(len(data)) == data
        await client.stream.aclose()
        await proxy.upstream.until(lambda: proxy.upstream.first.ending == "closed")

        assert (await proxy.ask("GET")).json()["connections"] == 1


@STREAMS
async def test_latency_delays_each_piece_of_data_once(stream):
    async with proxying() as proxy, connected(proxy.port) as client:
        await proxy.add("latency", stream=stream, latency=100)
        began = anyio.current_time()
        await client.send(HELLO)
        await client.read(5)
        await client.send(HELLO)
        await client.read(10)

        assert client.times[0] - began >= 0.1
        assert client.times[-1] - began >= 0.2
        assert await proxy.hits() == 2


async def test_latency_delays_pieces_side_by_side():
    async with proxying() as proxy, connected(proxy.port) as client:
        await proxy.add("latency", latency=500)
        sent = []
        for n in range(1, 6):
            sent.append(anyio.current_time())
            await client.send(HELLO)
            await proxy.upstream.until(lambda n=n: len(proxy.upstream.first.received) == 5 * n)
        await client.read(25)

        # One after the other, the last would come a whole latency after the first.
        assert client.times[-1] - client.times[0] < sent[-1] - sent[0] + 0.25


async def test_latency_with_jitter_keeps_the_order():
    async with proxying() as proxy, connected(proxy.port) as client:
        await proxy.add("latency", latency=50, jitter=50)
        for n in range(10):
            await client.send(bytes([n]))

        assert await client.read(10) == bytes(range(10))


async def test_latency_that_is_removed_lets_go_of_what_it_held_up():
    async with proxying() as proxy, connected(proxy.port) as client:
        await proxy.add("latency", latency=60_000)
        await client.send(HELLO)
        await proxy.until_hit()
        await proxy.remove()

        assert await client.read(5) == HELLO


@STREAMS
async def test_timeout_0_drops_data_until_it_is_removed_and_then_closes(stream):
    async with proxying() as proxy, connected(proxy.port) as client:
        await proxy.add("timeout", stream=stream, timeout=0)
        await client.send(HELLO)
        await proxy.until_hit()
        await proxy.remove()

        assert await client.read() == b""
        assert client.ending == "closed"
        assert proxy.upstream.first.received == (HELLO if stream == "downstream" else b"")
        assert await proxy.hits() == 1


@STREAMS
async def test_timeout_closes_also_a_connection_without_data(stream):
    async with proxying() as proxy, connected(proxy.port) as client:
        began = anyio.current_time()
        await proxy.add("timeout", stream=stream, timeout=100)
        await client.read()

        assert client.ending == "closed"
        assert client.times[-1] - began >= 0.1
        assert await proxy.hits() == 1


@STREAMS
async def test_reset_peer_resets_both_ends(stream):
    async with proxying() as proxy, connected(proxy.port) as client:
        began = anyio.current_time()
        await proxy.add("reset_peer", stream=stream, timeout=50)
        await client.send(HELLO)
        await client.read()
        await proxy.upstream.until(lambda: proxy.upstream.first.ending == "reset")

        assert (bytes(client.received), client.ending) == (b"", "reset")
        assert client.times[-1] - began >= 0.05
        assert await proxy.hits() == 1


@STREAMS
async def test_limit_data_closes_after_so_many_bytes(stream):
    async with proxying() as proxy, connected(proxy.port) as client:
        await proxy.add("limit_data", stream=stream, bytes=7)
        await client.send(HELLO)
        await client.read(5)
        assert await proxy.hits() == 0
        await client.send(HELLO)
        await client.read()

        passed = client if stream == "downstream" else proxy.upstream.first
        assert bytes(passed.received) == b"hellohe"
        assert client.ending == "closed"
        assert await proxy.hits() == 1


@STREAMS
async def test_bandwidth_lets_so_many_bytes_pass_in_a_second(stream):
    data = b"x" * 5_000
    async with proxying() as proxy, connected(proxy.port) as client:
        await proxy.add("bandwidth", stream=stream, rate=20)
        began = anyio.current_time()
        await client.send(data)
        assert await client.read(len(data)) == data

        assert client.times[-1] - began >= len(data) / 20_000
        assert await proxy.hits() >= 1


async def test_bandwidth_0_lets_nothing_pass_until_it_is_changed():
    async with proxying() as proxy, connected(proxy.port) as client:
        await proxy.add("bandwidth", stream="upstream", rate=0)
        await client.send(HELLO)
        await proxy.until_hit()
        assert not proxy.upstream.first.received
        answer = await proxy.ask("PATCH", "/toxics/t", attributes={"rate": 1_000})

        assert answer.json()["attributes"] == {"rate": 1_000}
        assert await client.read(5) == HELLO


@STREAMS
async def test_slicer_cuts_data_into_pieces_some_time_apart(stream):
    data = bytes(range(100))
    async with proxying() as proxy, connected(proxy.port) as client:
        attributes = {"average_size": 10, "size_variation": 5, "delay": 10_000}
        await proxy.add("slicer", stream=stream, **attributes)
        began = anyio.current_time()
        await client.send(data)
        assert await client.read(len(data)) == data

        # A hundred bytes are at least 7 pieces of at most 15.
        assert client.times[-1] - began >= 6 * 0.01
        assert await proxy.hits() == 1


async def test_slow_close_passes_the_end_on_later():
    async with proxying() as proxy, connected(proxy.port) as client:
        await proxy.add("slow_close", stream="upstream", delay=100)
        await client.send(HELLO)
        await client.read(5)
        began = anyio.current_time()
        await client.stream.aclose()
        await proxy.upstream.until(lambda: proxy.upstream.first.ending == "closed")

        assert proxy.upstream.first.times[-1] - began >= 0.1
        assert await proxy.hits() == 1


async def chosen(of_all: int, **attributes) -> list[bool]:
    """Tell which of twenty connections a toxic of half toxicity resets."""
    seen = []
    async with proxying(of_all) as proxy:
        await proxy.add("reset_peer", toxicity=0.5, **attributes)
        for _ in range(20):
            async with connected(proxy.port) as client:
                await client.send(HELLO)
                await client.read(5)
                seen.append(client.ending == "reset")
        assert await proxy.hits() == sum(seen)
    return seen


async def test_the_seed_chooses_the_connections_of_a_toxicity_below_1():
    first, again, other = [await chosen(seed) for seed in (7, 7, 8)]

    assert first == again != other
    assert {True, False} == set(first) == set(other)


async def test_a_toxic_can_have_a_seed_of_its_own():
    assert await chosen(8, seed=7) == await chosen(7)


async def test_down_cuts_and_refuses_and_up_is_at_the_same_port():
    async with proxying() as proxy, connected(proxy.port) as client:
        await client.send(HELLO)
        await client.read(5)
        assert (await proxy.ask("PATCH", enabled=False)).json()["enabled"] is False
        await client.read()
        async with connected(proxy.port) as refused:
            pass
        await proxy.ask("POST", enabled=True)
        async with connected(proxy.port) as later:
            await later.send(HELLO)
            assert await later.read(5) == HELLO

        assert (client.ending, refused.ending) == ("closed", "refused")
        assert await proxy.hits("down") == 1


@pytest.mark.parametrize("upstream", ["127.0.0.1", "nowhere.invalid:1", "127.0.0.1:99999"])
async def test_an_upstream_that_is_none_closes_its_clients_and_harms_nobody_else(upstream):
    async with proxying() as proxy:
        answer = await proxy.api.post("/proxies", json={"name": "bad", "upstream": upstream})
        async with connected(int(answer.json()["listen"].rpartition(":")[2])) as client:
            await client.read()
        async with connected(proxy.port) as other:
            await other.send(HELLO)
            await other.read(5)

    assert (client.ending, other.ending) == ("closed", "open")
