"""
Nothing of a paused queue or kind is claimed, but within the second that workers may take to hear.

What runs when the pause begins goes on.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import SECOND, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation

HEARD_S: Final = 1.0


def check(history: History) -> Iterator[Violation | None]:
    """Judge every claim of what is paused and was heard of."""
    queues: dict[int, str] = {}
    paused: dict[tuple[str, str], Entry] = {}
    for x in history.of("wal", "job", "pause", "resume", "claim"):
        if x.e == "job":
            queues[x.a["job"]] = x.a["queue"]
        elif x.e == "pause":
            paused.setdefault((x.a["scope"], x.a["name"]), x)
        elif x.e == "resume":
            pause = paused.pop((x.a["scope"], x.a["name"]), None)
            if pause is not None and (x.t - pause.t) / SECOND > HEARD_S:
                yield None
        else:
            for key in (("queue", queues.get(x.a["job"], "")), ("kind", x.a["kind"])):
                pause = paused.get(key)
                over_s = HEARD_S + history.terms.slack_s
                if pause is not None and (x.t - pause.t) / SECOND > over_s:
                    text = f"job {x.a['job']} was claimed although the {key[0]} {key[1]} is paused"
                    yield Violation(text, (pause, x))


INVARIANT = Invariant(
    name="pause.obeyed",
    promise="nothing of a paused queue or kind is claimed, but in the first second",
    check=check,
)
