"""
Every error that buries jobs is told of, once in a window of time, and no window has many alerts.

The key of an alert is `kind:fingerprint:window`, and `*:more:window` for all that are not told one
by one. Whether two jobs died of one error is asked of the texts that were kept of them, not of the
fingerprints: those may be fewer, never more.
"""

from collections import defaultdict
from collections.abc import Iterator
from urllib.parse import unquote

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation

_REST = "*"


def check(history: History, *, most: int = 11) -> Iterator[Violation | None]:
    """Judge each alert, the alerts of each kind and window, of each window, and each kind that died."""
    made = [x for x in history.of("wal", "job") if x.a["kind"] == "alert"]
    heard = _heard(history)
    errors: dict[str, dict[str, Entry]] = defaultdict(dict)
    for x in history.of("wal", "dead"):
        errors[x.a["kind"]].setdefault(x.a["error"], x)
    of_kind, of_window = defaultdict(list), defaultdict(list)
    for x in made:
        kind, _, window = x.a["key"].rsplit(":", 2)
        of_kind[kind, window].append(x)
        of_window[window].append(x)
        answers = heard[x.a["key"]]
        text = f"the alert {x.a['key']} was heard {len(answers)} times"
        yield Violation(text, (x, *answers[:2])) if len(answers) != 1 else None
    for (kind, window), alerts in of_kind.items():
        if len(alerts) > (1 if kind == _REST else len(errors[kind])):
            text = f"{len(alerts)} alerts in window {window} about {len(errors[kind])} errors of {kind}"
            yield Violation(text, tuple(alerts[-2:]))
    for window, alerts in of_window.items():
        text = f"{len(alerts)} alerts in window {window}, and {most} at most were promised"
        yield Violation(text, tuple(alerts[-1:])) if len(alerts) > most else None
    if made:  # where there are alerts at all, which a scenario asks for
        yield from _unheard(errors, {kind for kind, _ in of_kind})


def _heard(history: History) -> dict[str, list[Entry]]:
    """Find the answers that said yes, by the key of the alert."""
    keys = {x.a["call"]: unquote(x.a["key"]) for x in history.of("upstream", "request")}
    heard: dict[str, list[Entry]] = defaultdict(list)
    for x in history.of("upstream", "response"):
        if x.a["status"] < 300 and x.a["how"] == "whole":  # noqa: PLR2004
            heard[keys[x.a["call"]]].append(x)
    return heard


def _unheard(errors: dict[str, dict[str, Entry]], told: set[str]) -> Iterator[Violation | None]:
    for kind, of_kind in errors.items():
        if kind != "alert" and kind not in told and _REST not in told:
            yield Violation(
                f"jobs of {kind} died, and nobody was told", tuple(of_kind.values())[:1]
            )


INVARIANT = Invariant(
    name="alert.heard-once",
    promise="every error that buries jobs is told of once in a window, or with the rest of them",
    check=check,
)
