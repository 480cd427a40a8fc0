"""
A job whose cancel was accepted is not run again, and what runs of it is stopped or given up.

Accepted is what stands in the rows. From then on nobody claims the job, nothing puts it back into the
queue and no renewal moves its lease, so that it has ended once the lease has, and a reaper's beat. Its
handler is told within a renewal: one that lets go when it is told to has ended by then; one that
does not, but computes or swallows cancellation, has ended with its lease, or is said to be abandoned.
Judged are processes that lived and could act: neither ended nor frozen.
"""

from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import ENDS, FOREVER, SECOND, Entry, History, Holding, moment
from reliq.scenario.invariants.claims_stopped_first import LET_GO
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.work_all_settle import state_after
from reliq.scenario.invariants.workers import BEAT_SPREAD

RENEWED_IN: Final = 1 / 2
"""Of a lease: the longest from one renewal to the next."""


def check(history: History) -> Iterator[Violation | None]:
    """Judge every cancel that was accepted, by what became of the job and of its handler."""
    wanted: dict[int, Entry] = {}
    for x in history.of("wal", "claim", "renew", "write", *ENDS):
        job = x.a["job"]
        if x.e == "write" and "cancel_requested_at" in x.a["columns"] and job not in wanted:
            wanted[job] = x
            yield None
        elif job in wanted and (x.e in {"claim", "renew"} or state_after(x) == "queued"):
            text = f"job {job} was to be cancelled, and then there was a `{x.e}`"
            yield Violation(text, (wanted[job], x))
    for job, holdings in history.holdings().items():
        held, cancel = holdings[-1], wanted.get(job)
        if cancel is not None and cancel.a["state"] == "running" and held.claim.i < cancel.i:
            yield _late_end(history, held, cancel)
            yield _late_stop(history, held, cancel)


def _late_end(history: History, held: Holding, cancel: Entry) -> Violation | None:
    """Say whether the job ran on after its lease and a reaper's beat."""
    terms, last = history.terms, history.entries[-1]
    beat_s = terms.reap_every_s * BEAT_SPREAD + terms.slack_s
    due = moment(held.lease_until, (held.renewals or [held.claim])[-1]) + round(beat_s * SECOND)
    if (held.end or last).t <= max(due, cancel.t + round(terms.slack_s * SECOND)):
        return None
    text = f"job {held.job} was to be cancelled, and its lease had ended for longer than a beat"
    return Violation(text, (held.claim, cancel, *([held.end] if held.end else [])))


def _late_stop(history: History, held: Holding, cancel: Entry) -> Violation | None:
    """Say whether the handler of a process that could act went on unheard."""
    terms, claim = history.terms, held.claim
    run = claim.p, held.job, claim.a["attempt"]
    hit = {x.a["to"] for x in history.signals("STOP", "KILL")}
    exits = {x.p: x.t for x in history.of("process", "exited")}
    begun = {(x.p, x.a["job"], x.a["attempt"]) for x in history.of("process", "drill.started")}
    lets_go = claim.a["kind"] in LET_GO
    bound_s = terms.slack_s + terms.lease_s * (RENEWED_IN if lets_go else 1)
    due = cancel.t + round(bound_s * SECOND)
    if run not in begun or claim.p in hit or exits.get(claim.p, FOREVER) <= due:
        return None
    said = [
        x.t
        for x in history.of("process", "drill.ended", *([] if lets_go else ["attempt.abandoned"]))
        if (x.p, x.a["job"]) == run[:2]
    ]
    if min(said, default=FOREVER) <= due or history.entries[-1].t <= due:
        return None
    text = f"{claim.p} let the handler of job {held.job} go on for {bound_s:.3f} s after its cancel"
    return Violation(text, (claim, cancel))


INVARIANT = Invariant(
    name="cancel.final",
    promise="a job whose cancel was accepted is stopped in time, and never runs again",
    check=check,
)
