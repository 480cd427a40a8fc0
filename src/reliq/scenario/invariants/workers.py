"""
When somebody could have done it: what every "in time" is judged by.

A promise that work is picked up in time holds while a worker can work. So no span of time is
held against the product as such; what is held against it is a worker that could have done the
thing for longer than the bound, without a break, and nobody did it.

A worker can work from its first sign in the database on, until a fault hits it, it is told to
stop, it loses the database or it ends. After a fault it can work again from its first claim, or
its first look for one, after the fault was over. A fault hits the process that it names; one that
names no process hits all. A worker is idle while it can work, runs fewer attempts than it has
places, and none that must run alone. Rows that somebody
locks hit nobody: who waits for them is late.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reliq.scenario.history import ENDS, FOREVER, SECOND, Entry, Harm, History, moment
from reliq.scenario.invariants.kind import Violation

BEAT_SPREAD: Final = 1.1
"""Workers spread their beats by a tenth, so that they do not all look at once."""

SUSPECT_AFTER: Final = 2
"""After so many lost leases in a row a job runs alone."""

_SIGNS: Final = frozenset({"claim_jobs", "reap_jobs", "renew_leases"})
_LOCKED: Final = "rows"
_STOPPING: Final = ("exited", "worker.draining", "database.away")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Spans:
    """For each worker the spans of `t`, all longer than `over_s`, in which it could do a thing."""

    of: Mapping[str, Sequence[Span]]
    over_s: float

    def within(self, begin: int, end: int) -> tuple[str, float] | None:
        """Return a worker that could have done it too long, and for how many seconds."""
        for p, spans in self.of.items():
            for n in range(max(bisect_right(spans, (begin, begin)) - 1, 0), len(spans)):
                if spans[n][0] >= end:
                    break
                lasted_s = (min(spans[n][1], end) - max(spans[n][0], begin)) / SECOND
                if lasted_s > self.over_s:
                    return p, lasted_s
        return None


def able(history: History, over_s: float) -> Spans:
    """Find when each worker could look for lost leases; a beat after an outage comes late."""
    late = round(history.terms.lease_s * SECOND)
    spans = {
        p: [(begin + late * is_back, end) for begin, end, is_back in of]
        for p, of in _able(history).items()
    }
    return _longer(spans, over_s)


def idle(history: History, over_s: float) -> Spans:
    """Find when each worker could work and had a place free."""
    loads = _loads(history)
    spans = {
        p: [
            span
            for begin, end, _ in of
            for span in _with_a_place(loads.get(p, ()), begin, end, history.terms.concurrency)
        ]
        for p, of in _able(history).items()
    }
    return _longer(spans, over_s)


def left_lying(spans: Spans, made: Entry, claim: Entry | None, end: int) -> Violation | None:
    """Say whether a job lay due while a worker was idle; `end` is when the history ends."""
    due = max(made.t, moment(made.a["run_at"], made, claim))
    found = spans.within(due, claim.t if claim else end)
    if found is None:
        return None
    who, lasted_s = found
    text = f"job {made.a['job']} lay due for {lasted_s:.3f} s while {who} was idle"
    return Violation(f"{text}, not {spans.over_s:.3f} s", (made, claim) if claim else (made,))


def _longer(spans: Mapping[str, Sequence[Span]], over_s: float) -> Spans:
    of = {
        p: [span for span in of if span[1] - span[0] > over_s * SECOND] for p, of in spans.items()
    }
    return Spans(of, over_s)


def _able(history: History) -> dict[str, list[tuple[int, int, bool]]]:
    """List begin, end and whether something had hit it before, for each worker."""
    signs, looks = defaultdict(list), defaultdict(list)
    for x in history.of("wal", "claim", "renew", "statement", *ENDS):
        if x.e != "statement" or x.a["stmt"] in _SIGNS:
            signs[x.p].append(x.t)
        if x.e == "claim" or x.a["stmt"] == "claim_jobs":
            looks[x.p].append(x.t)
    known = signs.keys() | {x.p for x in history.of("process", "started", "exited")}
    harms, found = history.harms(), {}
    for p in sorted(signs.keys() - {""}):
        breaks = sorted(_breaks(history, harms, p, known))
        begin, is_back, spans = signs[p][0], False, []
        for from_, until in breaks:
            if until < begin and is_back:
                continue
            spans.append((begin, from_, is_back))
            n = bisect_right(looks[p], max(until, begin))
            begin, is_back = (looks[p][n] if n < len(looks[p]) else FOREVER), True
        end = history.entries[-1].t
        found[p] = [span for span in [*spans, (begin, end, is_back)] if span[0] < span[1]]
    return found


def _breaks(history: History, harms: Sequence[Harm], p: str, known: set[str]) -> Iterator[Span]:
    for harm in harms:
        fault, to = harm.fault, harm.fault.a["to"]
        if to == p or (to not in known and to != _LOCKED):
            is_last = fault.a["hits"] and fault.a.get("sig") in {"TERM", "INT", "KILL"}
            yield fault.t, FOREVER if to == p and is_last else harm.until
    backs = [x.t for x in history.of("process", "database.back") if x.p == p]
    for x in history.of("process", *_STOPPING):
        if x.p == p:
            n = bisect_right(backs, x.t)
            is_back = x.e == "database.away" and n < len(backs)
            yield x.t, backs[n] if is_back else FOREVER


def _loads(history: History) -> dict[str, list[Span]]:
    """List when each worker's load changed and by how many places."""
    begun = {(x.p, x.a["job"], x.a["attempt"]) for x in history.of("process", "drill.started")}
    ended = {(x.p, x.a["job"], x.a["attempt"]): x.t for x in history.of("process", "drill.ended")}
    loads: dict[str, list[Span]] = defaultdict(list)
    for holdings in history.holdings().values():
        lost = 0
        for held in holdings:
            claim, end = held.claim, held.end
            run = claim.p, claim.a["job"], claim.a["attempt"]
            silent = 0 if run not in begun or _is_apart(claim) else FOREVER
            until = max(end.t if end else FOREVER, ended.get(run, silent))
            places = history.terms.concurrency if lost >= SUSPECT_AFTER else 1
            loads[claim.p] += [(claim.t, places), (until, -places)]
            if end is not None and end.e != "release":
                lost = lost + 1 if end.e == "lease-lost" else 0
    return loads


def _is_apart(claim: Entry) -> bool:
    """Whether its handler, if it was not heard to end, ended with a process of its own."""
    return str(claim.a.get("kind")).startswith("drill.apart.")


def _with_a_place(loads: Sequence[Span], begin: int, end: int, places: int) -> Iterator[Span]:
    taken, since = 0, begin
    for t, change in sorted(loads):
        if taken < places <= taken + change:
            if since < min(t, end):
                yield max(since, begin), min(t, end)
        elif taken + change < places <= taken:
            since = max(t, begin)
        taken += change
    if taken < places and since < end:
        yield since, end
