"""What was committed, in the words of the history: each change of a row is one entry or more."""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from reliq.scenario.history import Entry
from reliq.scenario.stage.decoding import Change, Row, Transaction, Who, microseconds

_ENDED: Final[Mapping[str, str]] = {
    "failed": "failed",
    "timed_out": "failed",
    "again": "again",
    "handed_back": "release",
    "lease_lost": "lease-lost",
    "cancelled": "cancelled",
}
_SLOT: Final = re.compile(r"(\S+)@(\d{4}-\d\d-\d\dT\S+Z)")
_LIMITS: Final = ("queue", "max_running", "rate", "burst")
_SEALED: Final = re.compile(r'"\$sealed": "([^":]+):')
_CLEAR: Final = re.compile(r'"secret": (?!\{"\$sealed"|null)')
"""A field that the drill calls secret, and whose value can be read."""
_PAYLOADS: Final = {
    "jobs": ("job", "id", "payload"),
    "parents": ("family", "job_id", "then_payload"),
}
_NOBODY: Final = Who("", "", "", "", 0, 0)

Said = Iterator[tuple[str, dict[str, Any]]]


def entries_of(transaction: Transaction, t: int) -> list[Entry]:
    """Write a transaction as entries, all of the moment `t` (nanoseconds, monotonic)."""
    attempts = {
        (part.new["job_id"], part.new["fence"]): part.new
        for part in transaction.parts
        if isinstance(part, Change) and part.table == "attempts" and part.new
    }
    found = []
    for n, part in enumerate(transaction.parts):
        if isinstance(part, Who):
            who, said = part, chain(_statement(part))
        else:
            who = _who(part, transaction.parts[n + 1 :])
            said = chain(_said(part, attempts), _sealed(part), _reported(part))
        for e, fields in said:
            about = {"xid": transaction.xid, "stmt": who.stmt, "db": who.db or transaction.at}
            found.append(Entry(0, t, "wal", who.p, e, {**fields, **about}))
    return found


def _who(change: Change, later: list[Change | Who]) -> Who:
    """Find the message of the statement that made a change: the next one of its table and sort."""
    return next(
        (
            part
            for part in later
            if isinstance(part, Who) and (part.table, part.op) == (change.table, change.op)
        ),
        _NOBODY,
    )


def _statement(who: Who) -> Said:
    yield "statement", {"table": who.table, "op": who.op, "rows": who.rows}


def _said(change: Change, attempts: Mapping[tuple[int, int], Row]) -> Said:
    old, new = change.old or {}, change.new or {}
    match change.table, change.op:
        case "events", "insert":
            yield (
                "event",
                {"event": new["id"], "source": new["source"], "key": new.get("dedup_key")},
            )
        case "effects", "insert":
            yield "effect", {"job": new["job_id"], "key": new["key"], "attempt": new["attempt"]}
        case "limits" | "job_groups", "insert" | "update":
            yield from _limited(change.table, old, new)
        case "pauses", "insert" | "delete":
            row = new or old
            what = "pause" if change.op == "insert" else "resume"
            yield what, {"scope": row["scope"], "name": row["name"]}
        case "effect_keys", "insert" | "update" | "delete":
            yield from _of_ledger(old, new)
        case "parents", "insert":
            names = {"parent": "job_id", "kind": "then_kind"}
            fields = {name: new[column] for name, column in names.items()}
            yield "family", {**fields, "children": new["children"], "on_failure": new["on_failure"]}
        case "jobs", "insert":
            yield from _made(new)
        case "jobs", "update":
            yield from _moved(old, new, attempts)
        case "jobs", "delete":
            yield "gone", {"job": old["id"], "state": old["state"]}
        case _:
            pass  # what else happens to these tables is told by its statement


def _of_ledger(old: Row, new: Row) -> Said:
    row = new or old
    about = {"key": row["key"], "job": row["job_id"], "fence": row["fence"]}
    if not new:  # what is done is pruned one day, and that is no news
        if row.get("done_at") is None:
            yield "effect-released", about
        return
    was = {"was_job": old.get("job_id"), "was_fence": old.get("fence")}
    if (new["job_id"], new["fence"]) != (was["was_job"], was["was_fence"]):
        yield "effect-reserved", {**about, **was}
    if new.get("done_at") is not None and old.get("done_at") is None:
        yield "effect-done", about


def _sealed(change: Change) -> Said:
    """Tell of a payload with secret fields that was written, beside what else happened."""
    if change.table not in _PAYLOADS or not change.new:
        return
    of, job, column = _PAYLOADS[change.table]
    text = change.new.get(column) or ""
    keys, is_clear = ",".join(sorted(set(_SEALED.findall(text)))), bool(_CLEAR.search(text))
    if text != (change.old or {}).get(column) and (keys or is_clear):
        yield "sealed", {"job": change.new[job], "of": of, "keys": keys, "clear": is_clear}


def _reported(change: Change) -> Said:
    """Tell of a report that was begun or has ended, and of what was written into one."""
    new = change.new or {}
    if change.table == "reports" and new and new["state"] != (change.old or {}).get("state"):
        fields = {name: new.get(name) for name in ("state", "chunks", "rows")}
        yield "report", {"report": new["id"], **fields}
    if change.table == "report_parts" and new:
        fields = {name: new[name] for name in ("chunk", "part", "rows")}
        yield "part", {"report": new["report_id"], **fields}


def _made(job: Row) -> Said:
    names = ("kind", "key", "run_at", "queue", "priority", "requeued_from", "group_key")
    fields = {name: job.get(name) for name in names} | {"parent": job.get("parent_id")}
    yield "job", {"job": job["id"], "event": job.get("event_id"), **fields}
    if slot := _SLOT.fullmatch(job["key"]):
        yield "slot", {"job": job["id"], "schedule": slot[1], "at": microseconds(slot[2])}


def _limited(table: str, old: Row, new: Row) -> Said:
    if table == "job_groups":
        if old.get("running") != new["running"]:
            yield "group", {"group_key": new["key"], "running": new["running"]}
        return
    limit = {name: new.get(name) for name in _LIMITS}
    if any(old.get(name) != value for name, value in limit.items()):
        yield "limit", {**limit, "rate": None if limit["rate"] is None else float(limit["rate"])}
    if old.get("open_until") != new.get("open_until"):
        yield "breaker", {"queue": new["queue"], "open_until": new.get("open_until")}


def _moved(old: Row, new: Row, attempts: Mapping[tuple[int, int], Row]) -> Said:
    about = {"job": new["id"], "kind": new["kind"], "fence": new["fence"]}
    until = {"lease_until": new.get("lease_until")}
    match old["state"], new["state"]:
        case ("queued", "running") | ("running", "running") if (
            old["state"] == "queued" or new["fence"] > old["fence"]
        ):  # a claim of a running job breaks a promise, but it is a claim
            names = ("attempt", "attempts_max", "worker")
            fields = {name: new[name] for name in names}
            yield "claim", {**about, **fields, "run_at": old["run_at"], **until}
        case "running", "running" if new["fence"] == old["fence"] and _is_renewed(old, new):
            yield "renew", {**about, **until, "was": old.get("lease_until")}
        case "running", "succeeded" if new["fence"] == old["fence"]:
            yield "succeeded", {**about, "attempt": new["attempt"], **until}
        case "running", "queued" | "dead" | "cancelled" if (new["id"], new["fence"]) in attempts:
            yield from _ended(old, new, attempts[new["id"], new["fence"]])
        case _:
            states = {"state": new["state"], "was_state": old["state"]}
            if columns := _changed(old, new):  # else it only locked
                yield "write", {**about, **states, "columns": columns}


def _ended(old: Row, new: Row, attempt: Row) -> Said:
    about = {"job": new["id"], "kind": new["kind"], "fence": new["fence"]}
    is_dead = new["state"] == "dead"
    yield (
        _ENDED[attempt["ended"]],
        {
            **about, "attempt": attempt["attempt"], "ended": attempt["ended"],
            "error": attempt.get("error"), "status": attempt.get("status"),
            "worker": old.get("worker"), "lease_until": old.get("lease_until"),
            "run_at": new["run_at"] if new["state"] == "queued" else None, "state": new["state"],
        },
    )  # fmt: skip
    if is_dead:
        reason, error = new.get("dead_reason"), new.get("last_error")
        yield "dead", {**about, "attempt": attempt["attempt"], "reason": reason, "error": error}


def _is_renewed(old: Row, new: Row) -> bool:
    """Whether a lease was moved and nothing else but that the job now runs alone."""
    columns = set(_changed(old, new))
    return "lease_until" in columns <= {"lease_until", "alone"}


def _changed(old: Row, new: Row) -> list[str]:
    # A large value that was not touched is not written out.
    return sorted(name for name in new if new[name] not in {old.get(name), "unchanged-toast-datum"})
