"""
An effect of the ledger is done once: by one holder at a time, and never again after that.

Whoever writes holds the job; a reservation changes hands only when its holder's claim or lease was
over, and who takes it over hears that nobody knows how it ended.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


@dataclass(slots=True)
class Ledger:
    """Who holds which job and which effect, as the rows came about."""

    claims: dict[int, Entry] = field(default_factory=dict)
    until: dict[int, int] = field(default_factory=dict)
    over: dict[int, Entry] = field(default_factory=dict)
    holders: dict[str, Entry] = field(default_factory=dict)
    done: dict[str, Entry] = field(default_factory=dict)
    told: dict[tuple[str, str, int, int], Entry] = field(default_factory=dict)
    """Reservations by what their handler knows of them: process, key, job and attempt."""

    def note(self, x: Entry) -> None:
        """Take note of what became of a job."""
        job = x.a["job"]
        if x.e == "claim":
            self.claims[job] = x
            self.over.pop(job, None)
        if x.e in {"claim", "renew"}:
            self.until[job] = x.a["lease_until"]
        else:
            self.over[job] = x

    def is_held(self, x: Entry) -> bool:
        """Tell whether the job of an entry is claimed under the fence of that entry."""
        job, claim = x.a["job"], self.claims.get(x.a["job"])
        return claim is not None and claim.a["fence"] == x.a["fence"] and job not in self.over


def check(history: History) -> Iterator[Violation | None]:
    """Judge each write of the ledger, what handlers were told of it, and calls after the end."""
    ledger = Ledger()
    for x in history.of(
        "wal", "claim", "renew", "effect-reserved", "effect-done", "effect-released", *ENDS
    ):
        match x.e:
            case "effect-reserved":
                yield _foreign(ledger, x) or _reserved(ledger, x)
                ledger.holders[x.a["key"]] = x
                if (claim := ledger.claims.get(x.a["job"])) is not None:
                    ledger.told[x.p, x.a["key"], x.a["job"], claim.a["attempt"]] = x
            case "effect-done":
                yield _foreign(ledger, x) or _done(ledger, x)
                ledger.done.setdefault(x.a["key"], x)
            case "effect-released":
                yield _foreign(ledger, x) or _released(ledger, x)
                ledger.holders.pop(x.a["key"], None)
            case _:
                ledger.note(x)
    yield from _told(history, ledger)
    yield from _calls(history, ledger.done)


def _foreign(ledger: Ledger, x: Entry) -> Violation | None:
    claim = ledger.claims.get(x.a["job"])
    if claim is not None and ledger.is_held(x) and claim.p == x.p:
        return None
    text = f"{x.p} wrote `{x.e}` of {x.a['key']} for job {x.a['job']} under fence {x.a['fence']}"
    end = ledger.over.get(x.a["job"])
    return Violation(f"{text}, and did not hold it", tuple(y for y in (claim, end, x) if y))


def _reserved(ledger: Ledger, x: Entry) -> Violation | None:
    key, job = x.a["key"], x.a["job"]
    before, end = ledger.holders.get(key), ledger.done.get(key)
    if end is not None:
        return Violation(f"job {job} began {key}, which was done", (end, x))
    if before is None or before.a["job"] == job or not ledger.is_held(before):
        return None
    if ledger.until[before.a["job"]] <= x.a["db"]:
        return None
    return Violation(f"job {job} took {key} from job {before.a['job']}, which lives", (before, x))


def _done(ledger: Ledger, x: Entry) -> Violation | None:
    key, holder = x.a["key"], ledger.holders.get(x.a["key"])
    if (end := ledger.done.get(key)) is not None:
        return Violation(f"{key} was done twice", (end, x))
    if holder is None or (holder.a["job"], holder.a["fence"]) != (x.a["job"], x.a["fence"]):
        return Violation(f"{key} was done by who had not begun it", (holder, x) if holder else (x,))
    return None


def _released(ledger: Ledger, x: Entry) -> Violation | None:
    key, holder = x.a["key"], ledger.holders.get(x.a["key"])
    if holder is None or (holder.a["job"], holder.a["fence"]) != (x.a["job"], x.a["fence"]):
        text = f"{key} was given back by who had not begun it"
        return Violation(text, (holder, x) if holder else (x,))
    if holder.a["was_job"] is not None:
        return Violation(f"{key} was given back, and nobody knows of the time before", (holder, x))
    return None


def _told(history: History, ledger: Ledger) -> Iterator[Violation | None]:
    """Judge what handlers were told: `new` is nobody's before, `unknown` was somebody's."""
    for x in history.of("process", "drill.effect"):
        key, found = x.a["key"], x.a["found"]
        end, row = ledger.done.get(key), ledger.told.get((x.p, key, x.a["job"], x.a["attempt"]))
        text = f"job {x.a['job']} was told that {key} is {found}"
        if found == "done":
            is_true = end is not None and x.seconds_to(end) <= history.terms.slack_s
            yield None if is_true else Violation(f"{text}, and it was not", (x,))
        elif row is None:
            yield Violation(f"{text}, and nothing was reserved", (end, x) if end else (x,))
        elif (row.a["was_job"] is None) != (found == "new"):
            yield Violation(f"{text}, and it was begun by job {row.a['was_job']}", (row, x))
        else:
            yield None


def _calls(history: History, done: Mapping[str, Entry]) -> Iterator[Violation | None]:
    requests = defaultdict(list)
    for request in history.of("upstream", "request"):
        requests[request.a["key"]].append(request)
    for key, end in done.items():
        late = [x for x in requests[key] if end.seconds_to(x) > history.terms.slack_s]
        yield Violation(f"{key} was called for after it was done", (end, late[0])) if late else None


INVARIANT = Invariant(
    name="effects.once",
    promise="an effect of job.once has one holder at a time, is done once, and then never again",
    check=check,
)
