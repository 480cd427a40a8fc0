"""A job that calls the upstream has succeeded only after the upstream answered it with success."""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation

CALLING: Final = frozenset({"drill.call", "drill.sleep", "drill.stubborn"})


def check(history: History) -> Iterator[Violation | None]:
    """Judge every job of a calling kind that succeeded."""
    calls = history.calls()
    for done in history.of("rows", "succeeded"):
        if done.a["kind"] not in CALLING:
            continue
        good = [c.response for c in calls.get(done.a["job"], ()) if c.is_answered(well=True)]
        if any(x and x.seconds_to(done) > -history.terms.slack_s for x in good):
            yield None
        else:
            text = f"job {done.a['job']} succeeded, and the upstream had not said so"
            yield Violation(text, (*[x for x in good if x][:1], done))


INVARIANT = Invariant(
    name="work.ran-before-done",
    promise="a job succeeds only after its call was answered with success",
    check=check,
)
