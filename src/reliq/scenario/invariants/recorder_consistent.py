"""
The witnesses tell one story: what one of them saw has the cause that another must have seen.

Where it has none, a line is missing or wrong, and nothing that rests on it is proven: the run is
`void`. Rows are held against rows in `_rows` (each change of a job begins where the one before
ended), against clocks and transactions in `_moments`, and against the other witnesses elsewhere.
"""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

from reliq.scenario.history import DB_SECOND, ENDS, SECOND, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.work_all_settle import state_after

_BY_WORKERS: Final = ("claim", "renew", "effect", "slot", *ENDS)
_CHANGES: Final = ("job", "claim", "renew", "write", "dead", "gone", *ENDS)


def check(history: History) -> Iterator[Violation | None]:
    """Judge each entry that follows from another one."""
    yield from _processes(history)
    yield from _rows(history)
    yield from _deaths(history)
    yield from _moments(history)
    yield from _attempts(history)
    yield from _calls(history)
    yield from _sent(history)


def _needs(x: Entry, cause: Entry | None, text: str, slack_s: float = 0.0) -> Violation | None:
    if cause is None:
        return Violation(text, (x,))
    return Violation(f"{text} before it", (cause, x)) if x.seconds_to(cause) > slack_s else None


def _processes(history: History) -> Iterator[Violation | None]:
    """Judge who did things: whoever did anything was started, once, and goes by one name."""
    started: dict[str, Entry] = {}
    names: dict[str, Entry] = {}
    for x in history.of("process", "started"):
        if started.setdefault(x.p, x) is not x:
            yield Violation(f"{x.p} was started twice", (started[x.p], x))
    others = (x for x in history.entries if x.src == "process" and x.e != "started")
    for x in (*history.of("wal", *_BY_WORKERS), *others):
        text = f"`{x.e}` is by {x.p or 'nobody'}, which was not started"
        yield _needs(x, started.get(x.p), text, history.terms.slack_s)
    for x in history.of("wal", "claim"):
        known = names.setdefault(x.a["worker"], x)
        if known.p != x.p:
            yield Violation(f"{known.p} and {x.p} go by the name {x.a['worker']}", (known, x))
    fired = {(x.a["step"], x.a["to"]): x for x in reversed(history.of("fault", "fired"))}
    for x in history.of("fault", "healed"):
        text = f"step {x.a['step']} was healed and had not been fired"
        yield _needs(x, fired.get((x.a["step"], x.a["to"])), text)


def _rows(history: History) -> Iterator[Violation | None]:
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


def _deaths(history: History) -> Iterator[Violation | None]:
    """Judge each death: it came of something, in the same transaction."""
    ends = [x for x in history.of("wal", "failed", "lease-lost") if x.a["run_at"] is None]
    causes = {(x.a["job"], x.a["fence"], x.a["xid"]): x for x in ends}
    deaths = {(x.a["job"], x.a["fence"], x.a["xid"]): x for x in history.of("wal", "dead")}
    for key in causes.keys() ^ deaths.keys():
        x = causes.get(key) or deaths[key]
        yield Violation(f"job {key[0]}: `{x.e}` stands alone where a job died", (x,))


def _moments(history: History) -> Iterator[Violation | None]:
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
        if usual is not None and lag < usual - slack:
            yield Violation(f"`{x.e}` was committed before it began", (x,))
        if x.e in {"claim", "renew"}:
            lasts_s = (x.a["lease_until"] - x.a["db"]) / DB_SECOND
            if abs(lasts_s - history.terms.lease_s) > history.terms.slack_s:
                yield Violation(f"job {x.a['job']} has a lease of {lasts_s:.3f} s", (x,))


def _attempts(history: History) -> Iterator[Violation | None]:
    """Judge handlers: they run what their process has claimed, and end what they began."""
    slack_s = history.terms.slack_s
    claims = {_run(x): x for x in reversed(history.of("wal", "claim"))}
    starts = {_run(x): x for x in reversed(history.of("process", "drill.started"))}
    for x in history.of("process", "drill.started"):
        text = f"{x.p} ran job {x.a['job']}, attempt {x.a['attempt']}, and had not claimed it"
        yield _needs(x, claims.get(_run(x)), text, slack_s)
    for x in history.of("process", "drill.ended", "drill.point"):
        yield _needs(x, starts.get(_run(x)), f"{x.p} said `{x.e}` and had not started")
    for x in history.of("wal", "succeeded") if starts else ():
        if x.a["kind"].startswith("drill."):
            text = f"job {x.a['job']} succeeded and its handler had not started"
            yield _needs(x, starts.get(_run(x)), text, slack_s)


def _calls(history: History) -> Iterator[Violation | None]:
    """Judge the upstream's log: attempts that were claimed call it, and it answers calls."""
    claims = {_run(x): x for x in reversed(history.of("wal", "claim"))}
    requests: dict[int, Entry] = {}
    for x in history.of("upstream", "request"):
        text = f"{x.p} called for job {x.a['job']}, attempt {x.a['attempt']}, which it had not"
        yield _needs(x, claims.get(_run(x)), text, history.terms.slack_s)
        if requests.setdefault(x.a["call"], x) is not x:
            yield Violation(f"call {x.a['call']} came twice", (requests[x.a["call"]], x))
    answered: dict[int, Entry] = {}
    for x in history.of("upstream", "response"):
        request = requests.get(x.a["call"])
        yield _needs(x, request, f"call {x.a['call']} was answered and had not come")
        if request and request.a["job"] != x.a["job"]:
            yield Violation(f"call {x.a['call']} was answered for another job", (request, x))
        if answered.setdefault(x.a["call"], x) is not x:
            yield Violation(f"call {x.a['call']} was answered twice", (answered[x.a["call"]], x))


def _sent(history: History) -> Iterator[Violation | None]:
    """Judge every event that was stored: somebody sent it."""
    sent = {x.a["key"]: x for x in reversed(history.of("driver", "delivery"))}
    for x in history.of("wal", "event") if sent else ():
        if x.a["key"] is not None and x.a["key"] not in sent:
            yield Violation(f"{x.a['key']} is stored and nobody sent it", (x,))


def _run(x: Entry) -> tuple[str, int, int]:
    return x.p, x.a["job"], x.a["attempt"]


INVARIANT = Invariant(
    name="recorder.consistent",
    promise="the witnesses agree: whatever one of them saw has its cause in what the others saw",
    check=check,
    doubts=True,
)
