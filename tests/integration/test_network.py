"""A run's links and faults: how they heal, what they are known to have hit, whose they are."""

import subprocess
import sys

import pytest

from reliq.errors import HarnessError
from reliq.scenario.stage.network import open_network
from reliq.servers.loopback import free_port
from tests.fixtures.network import HELLO, PROVIDERS, connected, linked, say

pytestmark = pytest.mark.anyio


@PROVIDERS
async def test_a_fault_that_nobody_met_has_no_hits(provider, servers):
    async with linked(servers[provider]) as (network, port, _):
        await say(port)
        fault = await network.add("db", "latency", {"latency": 1})
        assert await network.hits(fault) == 0
        await network.remove(fault)
        await say(port)

        assert await network.hits(fault) == 0
        assert await network.hits("db") == 0


@PROVIDERS
async def test_hits_are_known_when_the_fault_is_gone(provider, servers):
    async with linked(servers[provider]) as (network, port, _):
        fault = await network.add("db", "limit_data", {"bytes": 2})
        await say(port)
        await say(port)
        during = await network.hits(fault)
        await network.remove(fault)
        await say(port)

        assert during == await network.hits(fault) == 2


@PROVIDERS
async def test_a_link_that_goes_down_hits_the_connections_that_are_open(provider, servers):
    async with linked(servers[provider]) as (network, port, _):
        for n in (1, 2):
            async with connected(port) as first, connected(port) as second:
                for client in (first, second):
                    await client.send(HELLO)
                    await client.read(5)
                await network.down("db")
                await network.down("db")
                await network.up("db")
                await first.read()

            assert await network.hits("db") == 2 * n


@PROVIDERS
async def test_reset_heals_everything(provider, servers):
    async with linked(servers[provider]) as (network, port, _):
        fault = await network.add("db", "reset_peer", {"timeout": 0})
        await say(port)
        await network.down("db")
        await network.reset()
        await network.reset()
        await network.remove(fault)

        assert (await say(port))[0] == HELLO
        assert await network.hits(fault) == 1


@PROVIDERS
async def test_two_networks_share_a_server_and_not_their_links(provider, servers):
    server = servers[provider]
    async with linked(server) as (one, one_port, _), linked(server) as (two, two_port, _):
        await one.add("db", "reset_peer", {"timeout": 0})
        await two.reset()
        first, second = await say(one_port), await say(two_port)
        await two.clear()
        third = await say(one_port)

    assert [ending for _, ending, _ in (first, second, third)] == ["reset", "open", "reset"]


async def test_the_dice_of_a_run_fall_the_same_in_the_next(servers):
    seen = []
    for _ in range(2):
        async with linked(servers["builtin"]) as (network, port, _):
            await network.add("db", "reset_peer", {"timeout": 0}, toxicity=0.5)
            seen.append([(await say(port))[1] for _ in range(12)])

    assert seen[0] == seen[1]
    assert set(seen[0]) == {"open", "reset"}


async def test_what_the_server_refuses_is_the_rigs_fault(servers):
    async with linked(servers["builtin"]) as (network, _, upstream):
        with pytest.raises(HarnessError, match=r"did not put hail on db.*invalid toxic type"):
            await network.add("db", "hail", {})
        with pytest.raises(HarnessError, match="did not lay the link db"):
            await network.link("db", "127.0.0.1", upstream.port)


async def test_a_server_that_does_not_start_is_quoted(tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no luck today\nexit 3\n")
    with pytest.raises(HarnessError, match="could not be started"):
        async with open_network("toxiproxy", 7, program=broken):
            pass
    broken.chmod(0o755)
    with pytest.raises(HarnessError, match=r"(?s)ended with 3.*no luck today"):
        async with open_network("toxiproxy", 7, program=broken):
            pass


def test_our_proxy_ends_when_whoever_started_it_is_gone():
    proxy = subprocess.Popen(
        [sys.executable, "-m", "reliq.scenario.proxy", f"--port={free_port()}", "--until-eof"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert proxy.stdin is not None

    proxy.stdin.close()

    assert proxy.wait(timeout=60) == 0
