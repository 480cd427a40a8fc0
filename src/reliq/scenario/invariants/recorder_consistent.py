"""
The witnesses tell one story: what one of them saw has the cause that another must have seen.

Where it has none, a line is missing or wrong, and nothing that rests on it is proven: the run is
`void`. Rows are held against rows in `recorder_rows.py`, and against the other witnesses here.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final

from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.recorder_rows import changes, deaths, moments

_BY_PROCESSES: Final = (
    "event", "claim", "renew", "effect", "effect-reserved", "effect-done", "effect-released", "slot",
    *ENDS,
)  # fmt: skip

Key = Callable[[Entry], Hashable]


def check(history: History) -> Iterator[Violation | None]:
    """Judge each entry that follows from another one."""
    yield from _processes(history)
    yield from _once(history)
    yield from changes(history)
    yield from deaths(history)
    yield from moments(history)
    yield from _attempts(history)
    yield from _calls(history)
    yield from _people(history)


def _follow(
    causes: Iterable[Entry], effects: Iterable[Entry], key: Key, text: str, slack_s: float = 0.0
) -> Iterator[Violation | None]:
    """Judge each effect by the cause that it shares a key with: the n-th by the n-th."""
    known, used = defaultdict[Hashable, list[Entry]](list), Counter[Hashable]()
    for first in causes:
        known[key(first)].append(first)
    for x in effects:
        name = key(x)
        cause = known[name][used[name]] if used[name] < len(known[name]) else None
        used[name] += 1
        yield _needs(x, cause, text, slack_s)


def _needs(x: Entry, cause: Entry | None, text: str, slack_s: float = 0.0) -> Violation | None:
    if cause is None:
        return Violation(f"{x.p} `{x.e}`: {text}", (x,))
    if x.seconds_to(cause) > slack_s:
        return Violation(f"{x.p} `{x.e}`: {text} until later", (cause, x))
    return None


def _processes(history: History) -> Iterator[Violation | None]:
    """Judge who did things: whoever did anything was started, had not ended, and has one name."""
    slack_s, names = history.terms.slack_s, dict[str, Entry]()
    started = {x.p: x for x in reversed(history.of("process", "started"))}
    ended = {x.p: x for x in history.of("process", "exited")}
    own = [x for x in history.entries if x.src == "process" and x.e != "started"]
    for x in (*history.of("wal", *_BY_PROCESSES), *own, *history.of("upstream", "request")):
        yield _needs(x, started.get(x.p), "the process was not started", slack_s)
    for x in (*own, *history.of("upstream", "request")):
        if x.p in ended and ended[x.p].seconds_to(x) > slack_s:
            yield Violation(f"{x.p} `{x.e}` after the process had ended", (ended[x.p], x))
    for x in history.of("wal", "claim"):
        known = names.setdefault(x.a["worker"], x)
        if known.p != x.p:
            yield Violation(f"{known.p} and {x.p} go by the name {x.a['worker']}", (known, x))
    fired = {(x.a["step"], x.a["to"]): x for x in reversed(history.of("fault", "fired"))}
    for x in history.of("fault", "healed"):
        yield _needs(x, fired.get((x.a["step"], x.a["to"])), "its fault was not fired")


def _once(history: History) -> Iterator[Violation | None]:
    """Judge what can happen only once."""
    for (src, e), key in _ONCE.items():
        first: dict[Hashable, Entry] = {}
        for x in history.of(src, e):
            if first.setdefault(key(x), x) is not x:
                yield Violation(f"{x.p} `{e}` stands there twice", (first[key(x)], x))


def _attempts(history: History) -> Iterator[Violation | None]:
    """Judge handlers and what is said of them: processes run and end what they have claimed."""
    slack_s, claims = history.terms.slack_s, history.of("wal", "claim")
    starts, ends = history.of("process", "drill.started"), history.of("wal", *ENDS)
    yield from _follow(claims, starts, _run, "nobody had claimed it", slack_s)
    yield from _follow(starts, history.of("process", "drill.ended"), _run, "it had not started")
    known = {_run(x): x for x in reversed(starts)}
    for x in history.of("process", "drill.point"):
        yield _needs(x, known.get(_run(x)), "it had not started")
    for x in history.of("wal", "succeeded") if starts else ():
        if x.a["kind"].startswith("drill."):
            yield _needs(x, known.get(_run(x)), "its handler had not started", slack_s)
    held = {_hold(x): x for x in claims}
    for x in history.of("process", "lease.lost"):
        yield _needs(x, held.get(_hold(x)), "it was not claimed", slack_s)
    settled = {(x.a["job"], x.a["fence"]): x for x in ends}
    for x in history.of("process", "attempt.ended"):
        end = settled.get((x.a["job"], x.a["fence"]))
        if end is not None:
            yield _needs(x, end, "it had not ended", slack_s)
            if end.a["attempt"] != x.a["attempt"]:
                yield Violation(f"attempt {x.a['attempt']} was {end.a['attempt']}", (end, x))


def _calls(history: History) -> Iterator[Violation | None]:
    """Judge the upstream's log: attempts that were claimed call it, and it answers calls."""
    slack_s, requests = history.terms.slack_s, history.of("upstream", "request")
    claims, answers = history.of("wal", "claim"), history.of("upstream", "response")
    held = {_run(x): x for x in reversed(claims)}
    starts = {_run(x): x for x in reversed(history.of("process", "drill.started"))}
    for x in requests:
        yield _needs(x, held.get(_run(x)), "nobody had claimed it", slack_s)
        if starts:
            yield _needs(x, starts.get(_run(x)), "its handler had not started", slack_s)
    yield from _follow(requests, answers, _call, "it was not asked")
    heard: dict[Hashable, Entry] = {}
    for job, calls in history.calls().items():
        for call in calls:
            if call.response is not None:
                heard.setdefault((job, call.attempt, call.response.a["status"]), call.response)
    for x in history.of("wal", "failed") if requests else ():
        status = x.a.get("status")
        if status is not None:
            answer = heard.get((x.a["job"], x.a["attempt"], status))
            yield _needs(x, answer, f"nobody had answered {status}", slack_s)


def _people(history: History) -> Iterator[Violation | None]:
    """Judge what comes from outside: events were sent, slots have jobs, answers fit the rows."""
    sent = {x.a["key"] for x in history.of("driver", "delivery")}
    for x in history.of("wal", "event") if sent else ():
        if x.a["key"] is not None and x.a["key"] not in sent:
            yield Violation(f"{x.a['key']} is stored and nobody sent it", (x,))
    slots = {x.a["job"] for x in history.of("wal", "slot")}
    names = {schedule.name for schedule in history.terms.schedules}
    jobs = {x.a["job"]: x for x in history.of("wal", "job")}
    for x in jobs.values() if names else ():
        is_of_slot = str(x.a["key"]).rpartition("@")[0] in names
        if is_of_slot and x.a.get("requeued_from") is None and x.a["job"] not in slots:
            yield Violation(f"job {x.a['job']} is a slot's, and the slot was not taken", (x,))
    for x in history.of("driver", "requeued"):
        if (x.a["code"] == 0) != (x.a["new"] is not None):
            yield Violation(f"code {x.a['code']} with new job {x.a['new']}", (x,))
        elif x.a["new"] in jobs:
            yield _needs(x, jobs[x.a["new"]], "its job was not made", history.terms.slack_s)
    for x in history.of("driver", "delivery", "requeued"):
        if x.t < x.a.get("began", x.t):
            yield Violation(f"{x.a.get('key')} was answered before it was sent", (x,))


def _run(x: Entry) -> Hashable:
    return x.p, x.a["job"], x.a["attempt"]


def _hold(x: Entry) -> Hashable:
    return x.p, x.a["job"], x.a["fence"]


def _call(x: Entry) -> Hashable:
    return x.a["call"], x.a["job"]


def _process(x: Entry) -> Hashable:
    return x.p


_ONCE: Final[Mapping[tuple[str, str], Key]] = {
    ("process", "started"): _process,
    ("process", "ready"): _process,
    ("process", "exited"): _process,
    ("process", "worker.draining"): _process,
    ("process", "attempt.ended"): _hold,
    ("process", "lease.lost"): _hold,
    ("upstream", "request"): lambda x: x.a["call"],
    ("upstream", "response"): lambda x: x.a["call"],
    ("driver", "delivery"): lambda x: (
        x.a["key"],
        x.a.get("copy"),
        x.a.get("try"),
        x.a.get("began"),
    ),
    ("wal", "dead"): lambda x: (x.a["job"], x.a["fence"]),
    ("wal", "event"): lambda x: x.a["event"],
    ("wal", "gone"): lambda x: x.a["job"],
}


INVARIANT = Invariant(
    name="recorder.consistent",
    promise="the witnesses agree: whatever one of them saw has its cause in what the others saw",
    check=check,
    doubts=True,
)
