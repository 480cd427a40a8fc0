"""
Who is told to stop ends, with exit code 0, within the grace and what cleaning up may take.

A process that something else hits meanwhile is not judged.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import FOREVER, SECOND, History
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.shutdown import befell, told_to_stop

CLEANUP_S: Final = 4.0
"""For handlers to clean up, jobs to be handed back and connections to be closed."""


def check(history: History) -> Iterator[Violation | None]:
    """Judge every process that was told to stop, if the history tells how it ended."""
    terms = history.terms
    bound_s = terms.grace_s + CLEANUP_S + terms.slack_s
    exits = {x.p: x for x in history.of("process", "exited")}
    for p, term in told_to_stop(history).items():
        ended, due = exits.get(p), term.t + round(bound_s * SECOND)
        if befell(history, p, term.t) < min(due, ended.t if ended else FOREVER):
            continue
        if ended is None:
            if history.entries[-1].t > due:
                yield Violation(f"{p} was told to stop and did not in {bound_s:g} s", (term,))
        elif ended.a["code"] != 0:
            text = f"{p} was told to stop and ended with code {ended.a['code']}"
            yield Violation(text, (term, ended))
        elif ended.t > due:
            text = f"{p} took {term.seconds_to(ended):.3f} s to stop, not {bound_s:g} s"
            yield Violation(text, (term, ended))
        else:
            yield None


INVARIANT = Invariant(
    name="shutdown.exits",
    promise="a process that is told to stop ends with code 0 soon after its grace",
    check=check,
)
