"""
A lease that lapsed is given back within a reaper's beat, and its job claimed within a poll.

Whatever its owner died of or is frozen in. Judged while another worker can work (`workers.py`):
nobody else can be late. A lease that its owner ended itself, long after it had lapsed, was taken
over by nobody. A job whose attempts are used up is buried instead of claimed.
"""

from collections.abc import Iterator

from reliq.scenario.history import DB_SECOND, Entry, History, Holding, moment
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.workers import BEAT_SPREAD, Spans, able, idle, left_lying


def check(history: History) -> Iterator[Violation | None]:
    """Judge every lease that was lost, or that lapsed and was not."""
    terms = history.terms
    reapers = able(history, BEAT_SPREAD * terms.reap_every_s + terms.slack_s)
    takers = idle(history, terms.poll_s + terms.slack_s)
    last = next((x for x in reversed(history.entries) if x.src == "wal"), None)
    next_claims = {made.i: claim for made, claim in history.waits()}
    for held, _ in history.successions():
        end = held.end
        seen = end or last
        if seen is None or seen.a["db"] < held.lease_until:
            continue
        late = _late(reapers, held, seen) or _postponed(held)
        if late is None and end is not None and end.e == "lease-lost" and end.i in next_claims:
            late = left_lying(takers, end, next_claims[end.i], history.entries[-1].t)
        yield late


def _postponed(held: Holding) -> Violation | None:
    """Whether a lost job was given back for later: it is due at once."""
    end = held.end
    if end is None or end.e != "lease-lost" or (end.a.get("run_at") or 0) <= end.a["db"]:
        return None
    after_s = (end.a["run_at"] - end.a["db"]) / DB_SECOND
    return Violation(f"job {held.job} was given back for {after_s:.3f} s later", (held.claim, end))


def _late(reapers: Spans, held: Holding, seen: Entry) -> Violation | None:
    lapsed = moment(held.lease_until, (held.renewals or [held.claim])[-1], seen)
    found = reapers.within(lapsed, seen.t)
    if found is None:
        return None
    who, lasted_s = found
    text = f"the lease of job {held.job} had lapsed for {lasted_s:.3f} s and {who} let it lie"
    return Violation(text, (held.claim, seen))


INVARIANT = Invariant(
    name="claims.takeover-in-time",
    promise="a silent worker's job is taken over within lease + reap interval + poll interval",
    check=check,
)
