"""
A handler whose lease was lost has been stopped before the next claim of its job.

Judged are the processes that lived and could act: neither ended nor frozen. And handlers that
let go when they are told to: no worker can stop code that computes, or swallows cancellation.
Two witnesses, so the end may be seen later than the claim, by as much as the machine was late.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import FOREVER, History
from reliq.scenario.invariants.kind import Invariant, Violation

LET_GO: Final = frozenset({"drill.call", "drill.sleep"})


def check(history: History) -> Iterator[Violation | None]:
    """Judge every lost lease of a handler that had begun, if the job was claimed again."""
    runs = {
        e: {(x.p, x.a["job"], x.a["attempt"]): x for x in history.of("process", f"drill.{e}")}
        for e in ("started", "ended")
    }
    exits = {x.p: x.t for x in history.of("process", "exited")}
    hit = {x.a["to"] for x in history.signals("STOP", "KILL")}
    for held, then in history.successions():
        claim, run = held.claim, (held.claim.p, held.job, held.claim.a["attempt"])
        if then is None or held.end is None or held.end.e != "lease-lost":
            continue
        after = then.claim
        if claim.a["kind"] not in LET_GO or run not in runs["started"]:
            continue
        if claim.p in hit or exits.get(claim.p, FOREVER) <= after.t:
            continue
        ended = runs["ended"].get(run)
        if ended is None or after.seconds_to(ended) > history.terms.slack_s:
            late = f"{after.seconds_to(ended):.3f} s after" if ended else "and did not end after"
            text = f"job {held.job} ran on in {claim.p} {late} {after.p} had claimed it"
            yield Violation(text, (claim, after, ended) if ended else (claim, after))
        else:
            yield None


INVARIANT = Invariant(
    name="claims.stopped-first",
    promise="a handler whose lease cannot be kept is stopped before its job is claimed again",
    check=check,
)
