"""One job as a person reads it: what it is, where it came from, and what happened when."""

import json
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from reliq.cli.screen import console, print_table, words
from reliq.domain.redact import preview, printable, redact, redact_headers, scrub

BODY_SHOWN: Final = 2_000
"""Characters of an event's body."""

Document = dict[str, Any]


Secrets = AbstractSet[str] | None
"""Names of fields to mask besides those whose names say so; None is all of them."""


def presentable(job: Mapping[str, Any], secrets: Secrets) -> Document:
    """Copy a job as the desk shows it: secrets masked, the body shortened and readable."""
    payload = job["payload"]
    return {
        **job,
        "payload": redact(payload, payload.keys() if secrets is None else secrets),
        "result": redact(job["result"]),
        "last_error": _error(job["last_error"]),
        "attempts": [{**each, "error": _error(each["error"])} for each in job["attempts"]],
        "event": None if job["event"] is None else _event(job["event"], secrets),
    }


def _error(text: str | None) -> str | None:
    return None if text is None else printable(scrub(text))


def _event(event: Mapping[str, Any], secrets: Secrets) -> Document:
    body: bytes | None = event["body"]
    shown: Document = {"bytes": None, "form": "pruned", "shown": ""}
    if body is not None:
        masked = "masked", ""
        form, text = masked if secrets is None else preview(body, BODY_SHOWN, secrets)
        shown = {"bytes": len(body), "form": form, "shown": text}
    return {
        **event,
        "headers": redact_headers(event["headers"]),
        "parse_error": _error(event["parse_error"]),
        "body": shown,
    }


class Moment(NamedTuple):
    """Something that happened to a job, and when."""

    at: datetime
    what: str
    detail: str


def timeline(job: Mapping[str, Any]) -> Iterator[Moment]:
    """Tell a job's life in order, from its making to where it is now."""
    yield Moment(job["created_at"], "created", "")
    for attempt in job["attempts"]:
        number = f"attempt {attempt['attempt']}"
        if (started := attempt["started_at"]) is not None:
            yield Moment(started, f"{number} started", attempt["worker"] or "")
        if (ended := attempt["ended_at"]) is not None:
            status = "" if attempt["status"] is None else f" [{attempt['status']}]"
            what = attempt["ended"].replace("_", " ")
            yield Moment(ended, f"{number} {what}{status}", attempt["error"] or "")
    match job["state"]:
        case "queued":
            yield Moment(job["run_at"], "due", "")
        case "running":
            yield Moment(job["lease_until"], "lease ends unless renewed", "")
        case "dead":
            yield Moment(job["finished_at"], "dead", job["dead_reason"] or "")
        case "cancelled":
            yield Moment(job["finished_at"], "cancelled", "")
        case _:
            pass


def print_job(job: Document) -> None:
    """Print a job that `presentable` has made fit to be seen."""
    screen = console()
    reason = f" ({job['dead_reason']})" if job["dead_reason"] else ""
    screen.print(f"job {job['id']}  {words(job['kind'])}  {job['state']}{reason}", style="bold")
    for name, value in _facts(job):
        screen.print(f"  {name:<10}{value}", soft_wrap=True)
    screen.print("  payload   " + _indented(printable(_compact(job["payload"]))), soft_wrap=True)
    if job["result"] is not None:
        screen.print("  result    " + _indented(printable(_compact(job["result"]))), soft_wrap=True)
    if job["event"] is not None:
        _print_event(job["event"])
    screen.print("\nwhat happened", style="bold")
    before: datetime | None = None
    rows = []
    for at, what, detail in timeline(job):
        rows.append((at, _since(before, at), what, detail))
        before = at
    print_table(("at", "after", "what", "detail"), rows)


def _facts(job: Document) -> Iterator[tuple[str, str]]:
    yield "key", words(job["key"])
    yield "queue", f"{words(job['queue'])}, priority {job['priority']}"
    lost = f", {job['lost_leases']} lost leases in a row" if job["lost_leases"] else ""
    yield "attempts", f"{job['attempt']} of {job['attempts_max']}{lost}"
    if job["requeued_from"] is not None:
        why = f": {words(job['requeue_reason'])}" if job["requeue_reason"] else ""
        yield "made from", f"dead letter {job['requeued_from']} by {words(job['requeued_by'])}{why}"
    if job["requeued_as"] is not None:
        yield "made anew", f"as job {job['requeued_as']}"
    if job["cancel_requested_at"] is not None:
        why = f": {words(job['cancel_reason'])}" if job["cancel_reason"] else ""
        asked = f"{words(job['cancel_requested_at'])} by {words(job['cancel_requested_by'])}"
        yield "cancel", f"asked for {asked}{why}"
    if job["ignored"]:
        yield "ignored", f"by {words(job['ignored'])}"
    if job["last_error"]:
        yield "error", _indented(job["last_error"])


def _print_event(event: Document) -> None:
    screen = console()
    title = f"event {event['id']}  {words(event['source'])}  received {words(event['received_at'])}"
    screen.print(f"\n{title}", style="bold")
    if event["dedup_key"] is not None:
        screen.print(f"  dedup key {words(event['dedup_key'])}", soft_wrap=True)
    for name, value in event["headers"].items():
        screen.print(f"  {words(name)}: {value}", soft_wrap=True)
    if event["parse_error"]:
        screen.print(f"  not read  {_indented(event['parse_error'])}", soft_wrap=True)
    body = event["body"]
    size = "pruned" if body["bytes"] is None else f"{body['bytes']} bytes, as {body['form']}"
    screen.print(f"  body      {size}")
    if body["shown"]:
        screen.print("    " + body["shown"].replace("\n", "\n    "), soft_wrap=True)


def _compact(payload: Any) -> str:
    return json.dumps(payload, ensure_ascii=False)


def _indented(text: str) -> str:
    return text.replace("\n", "\n            ")


def _since(before: datetime | None, at: datetime) -> str:
    if before is None:
        return ""
    passed = at - before
    return f"+{words(passed)}" if passed >= timedelta(0) else words(passed)
