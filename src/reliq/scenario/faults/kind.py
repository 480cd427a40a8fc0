"""What a harm gets, and what it tells."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from reliq.scenario.recorder import Recorder
from reliq.scenario.stage.senders import Senders
from reliq.scenario.stage.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """
    All that a harm may touch.

    `who` is the process that the trigger named, empty if it named none.
    """

    stage: Stage
    senders: Senders
    recorder: Recorder
    who: str
    heal: Callable[[str], None]

    def named(self, to: str) -> str:
        """Put the process that the trigger named in the place of `{event.p}`."""
        return to.replace("{event.p}", self.who)


@dataclass(frozen=True, slots=True)
class Bite:
    """
    Whom a harm was meant for, how many it hit, and what else is to be said of it.

    Harm that `lasts` is undone; what it goes on hitting while it is on is counted by `later`.
    """

    to: str
    hits: int = 0
    about: dict[str, Any] = field(default_factory=dict)
    lasts: bool = False
    later: Callable[[], Awaitable[int]] | None = None
