"""
A job that calls has succeeded only after its call was answered with success, as a whole.

The answer must be to a request of the attempt that succeeded. Two witnesses, so it may be seen
later than the success, by as much as the machine was late.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation

CALLING: Final = frozenset({"drill.call", "drill.book", "drill.stubborn", "drill.apart.call"})


def check(history: History) -> Iterator[Violation | None]:
    """Judge every job of a calling kind that succeeded."""
    calls = history.calls()
    for done in history.of("wal", "succeeded"):
        if done.a["kind"] not in CALLING:
            continue
        own = [x for x in calls.get(done.a["job"], ()) if x.attempt == done.a["attempt"]]
        good = [x.response for x in own if x.response and x.is_answered(well=True)]
        if any(x.seconds_to(done) >= -history.terms.slack_s for x in good):
            yield None
        else:
            text = f"job {done.a['job']} succeeded by attempt {done.a['attempt']}"
            seen = [x.request for x in own[:1]] + good[:1]
            yield Violation(f"{text}, and the upstream had not said so", (*seen, done))


INVARIANT = Invariant(
    name="work.ran-before-done",
    promise="a job that calls succeeds only after its call was answered with success",
    check=check,
)
