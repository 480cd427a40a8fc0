"""
A handler in a process of its own succeeds by coming to its end, and is over with its attempt.

However it died, its job did not succeed of that; and nothing is heard of it after its attempt,
or its worker, has ended. Two witnesses, so its last word may be seen later, by as much as the
machine was late.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import Entry, History, Holding
from reliq.scenario.invariants.kind import Invariant, Violation

APART: Final = "drill.apart."


def check(history: History) -> Iterator[Violation | None]:
    """Judge every attempt of an isolated kind."""
    exits = {x.p: x for x in history.of("process", "exited")}
    said = history.of("process", "drill.going", "drill.ended")
    words = {(x.p, x.a["job"], x.a["attempt"]): x for x in said}
    for held, _ in history.successions():
        claim = held.claim
        if claim.a.get("kind", "").startswith(APART):
            word = words.get((claim.p, held.job, claim.a["attempt"]))
            yield _judged(held, word, exits.get(claim.p), history.terms.slack_s)


def _judged(
    held: Holding, word: Entry | None, gone: Entry | None, slack_s: float
) -> Violation | None:
    end, name = held.end, f"attempt {held.claim.a['attempt']} of job {held.job}"
    if end is not None and end.e == "succeeded" and (word is None or word.a.get("how") != "done"):
        return Violation(f"{name} succeeded, and its handler had not", (held.claim, end))
    for over in (end, gone):
        if word is not None and over is not None and over.seconds_to(word) > slack_s:
            return Violation(f"{name} was over, and its handler went on", (over, word))
    return None


INVARIANT = Invariant(
    name="work.own-process",
    promise="an isolated handler succeeds only by coming to its end, and does not outlive its attempt",
    check=check,
)
