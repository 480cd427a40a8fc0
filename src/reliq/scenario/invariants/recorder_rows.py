"""
Rows held against rows, for `recorder.consistent`.

Each change of a job begins where the one before it ended, in state, fence, attempt, lease and
moment; and each stands in a whole transaction with a moment that fits.
"""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

from reliq.scenario.history import DB_SECOND, ENDS, SECOND, Entry, History
from reliq.scenario.invariants.kind import Violation
from reliq.scenario.invariants.work_all_settle import state_after

_CHANGES: Final = ("job", "claim", "renew", "write", "dead", "gone", *ENDS)

_REPEATED: Final = frozenset({"", "enqueue_job", "insert_job", "insert_report_part", "store_event"})
"""Statements of which a transaction may hold several."""


def changes(history: History) -> Iterator[Violation | None]:
    """Judge each change of a job: it begins where the one before it ended."""
    last: dict[int, Entry] = {}
    facts: dict[int, dict[str, Any]] = {}
    for x in history.of("wal", *_CHANGES):
        job, before = x.a["job"], last.get(x.a["job"])
        known = facts.setdefault(job, {})
        wrong = [k for k, v in _before(x).items() if known.get(k) is not None and known[k] != v]
        if (before is None) != (x.e == "job"):
            text = f"job {job} has `{x.e}` and was {'never made' if before is None else 'made'}"
            yield Violation(text, (before, x) if before else (x,))
        elif before is not None and wrong:
            text = f"job {job}: `{x.e}` does not fit `{before.e}` in {', '.join(wrong)}"
            yield Violation(text, (before, x))
        else:
            yield None
        last[job] = x
        known |= _after(x)


def _before(x: Entry) -> Mapping[str, Any]:
    """Return what a change says of its job as it was before."""
    if x.e == "write":
        fixed = {} if "fence" in x.a["columns"] else {"fence": x.a["fence"]}
        return {"state": x.a["was_state"], **fixed}
    states = {"claim": "queued", "dead": None, "job": None, "gone": x.a.get("state")}
    names = {
        "claim": ("kind", "run_at"),
        "renew": ("fence",),
        "dead": ("kind", "fence", "attempt"),
        "gone": (),
        "job": (),
    }.get(x.e, ("kind", "fence", "attempt", "lease_until"))
    said = {name: x.a.get(name) for name in names}
    said |= {"lease_until": x.a["was"]} if x.e == "renew" else {}
    said |= {"worker": x.a["worker"]} if x.e == "lease-lost" else {}
    state = states.get(x.e, "running")
    return said if state is None else {**said, "state": state}


def _after(x: Entry) -> Mapping[str, Any]:
    """Return what a change says of its job as it is from now on; None is not known."""
    match x.e:
        case "job":
            return {"state": "queued", "kind": x.a["kind"], "run_at": x.a["run_at"], "fence": 0}
        case "claim":
            names = ("fence", "attempt", "lease_until", "worker")
            return {"state": "running", **{name: x.a[name] for name in names}}
        case "renew":
            return {"lease_until": x.a["lease_until"]}
        case "write":
            changed = {name: None for name in ("run_at", "lease_until") if name in x.a["columns"]}
            return {"state": x.a["state"], "fence": x.a["fence"], **changed}
        case "dead" | "gone":
            return {}
        case _:
            return {"state": state_after(x), "run_at": x.a.get("run_at")}


def deaths(history: History) -> Iterator[Violation | None]:
    """Judge each death: it came of something, in the same transaction."""
    ends = [x for x in history.of("wal", "failed", "lease-lost") if state_after(x) == "dead"]
    causes = {(x.a["job"], x.a["fence"], x.a["xid"]): x for x in ends}
    told = {(x.a["job"], x.a["fence"], x.a["xid"]): x for x in history.of("wal", "dead")}
    for key in causes.keys() ^ told.keys():
        x = causes.get(key) or told[key]
        yield Violation(f"job {key[0]}: `{x.e}` stands alone where a job died", (x,))


def moments(history: History) -> Iterator[Violation | None]:
    """Judge transactions (whole), leases (as long as set) and moments (before their commit)."""
    wal, slack = [x for x in history.entries if x.src == "wal"], history.terms.slack_s * SECOND
    by_xid: dict[int, Entry] = {}
    lags = [x.t - x.a["db"] * (SECOND // DB_SECOND) for x in wal]
    is_steady = not any("clock" in str(x.fault.a.get("do")) for x in history.harms())
    usual = median(lags) if lags and is_steady else None
    for n, (x, lag) in enumerate(zip(wal, lags, strict=True)):
        before, head = wal[n - 1] if n else None, by_xid.setdefault(x.a["xid"], x)
        if head is not x and before and before.a["xid"] != x.a["xid"]:
            yield Violation(f"transaction {x.a['xid']} is torn apart", (head, before, x))
        elif head.p != x.p:
            yield Violation(f"{head.p} and {x.p} share transaction {x.a['xid']}", (head, x))
        elif head.a["stmt"] == x.a["stmt"] not in _REPEATED and head.a["db"] != x.a["db"]:
            yield Violation(f"`{x.a['stmt']}` began at two moments in one transaction", (head, x))
        if usual is not None and lag < usual - slack:
            yield Violation(f"`{x.e}` was committed before it began", (x,))
        is_copied = x.a.get("parent") is not None  # its run_at is of the statement before
        if x.e == "job" and x.a["run_at"] < x.a["db"] and not is_copied:
            yield Violation(f"job {x.a['job']} was due before it was made", (x,))
        if x.e in {"claim", "renew"}:
            lasts_s = (x.a["lease_until"] - x.a["db"]) / DB_SECOND
            if abs(lasts_s - history.terms.lease_s) > history.terms.slack_s:
                yield Violation(f"job {x.a['job']} has a lease of {lasts_s:.3f} s", (x,))
