"""A toxic on links, in Toxiproxy's words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from reliq.scenario.faults.kind import Bite, Scene
from reliq.scenario.model.steps import Net


@asynccontextmanager
async def harm(what: Net, scene: Scene) -> AsyncIterator[Bite]:
    """Bend every link that is meant; hits are the connections or pieces that were changed."""
    network = scene.stage.links.network
    assert network is not None  # noqa: S101 - a step that bends a link has had one laid
    to = None if what.of is None else scene.named(what.of)
    links = scene.stage.links.of(what, to)
    on: list[Any] = []  # the name of a link that is down, or the toxic on it
    for link in links:
        if what.toxic == "down":
            await network.down(link)
            on.append(link)
        else:
            on.append(
                await network.add(link, what.toxic, what.attributes(), what.stream, what.toxicity)
            )

    async def hits() -> int:
        return sum([await network.hits(each) for each in on])

    yield Bite(
        to or what.link,
        await hits(),
        {"toxic": what.toxic, "link": what.link},
        lasts=True,
        later=hits,
    )
    for each in on:
        await (network.up(each) if isinstance(each, str) else network.remove(each))
