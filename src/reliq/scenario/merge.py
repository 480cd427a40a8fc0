"""
Several witnesses, one history: put what was seen and what the rows say together.

And ask whether they can have seen the same run: where they disagree, nothing is proven.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from reliq.scenario.history import Entry, History, Terms, in_order
from reliq.scenario.model import Scenario


def merge(
    scenario: Scenario, seen: Iterable[Entry], rows: Iterable[Entry], *, slack_s: float
) -> History:
    """
    Put what was seen and what the rows say into one history.

    A worker's name in the rows is a random word; which process it is, is known from the calls
    that the upstream got from its attempts. Faults learn what their victims held.
    """
    seen, rows = list(seen), list(rows)
    callers = {
        (x.a["job"], x.a["attempt"]): x.p for x in seen if (x.src, x.e) == ("upstream", "request")
    }
    names = {
        x.a["worker"]: callers[key]
        for x in rows
        if x.e == "claim" and (key := (x.a["job"], x.a["attempt"])) in callers
    }
    named = [replace(x, p=names.get(x.p, x.p)) for x in rows]
    history = History(entries=in_order([*seen, *named]), terms=terms(scenario, slack_s))
    entries = [
        replace(x, a={**x.a, "victim_live_leases": live_leases(history, x)})
        if (x.src, x.e) == ("fault", "fired")
        else x
        for x in history.entries
    ]
    return History(entries=entries, terms=history.terms)


def live_leases(history: History, fault: Entry) -> int:
    """Count the claims that the process a fault was meant for held at that moment."""
    return sum(
        held.claim.p == fault.a["to"]
        and held.claim.t <= fault.t
        and (held.end is None or held.end.t > fault.t)
        for holdings in history.holdings().values()
        for held in holdings
    )


def terms(scenario: Scenario, slack_s: float) -> Terms:
    """Return what the product was set to, in real seconds."""
    config = scenario.system.config
    real = {
        "lease_s": scenario.scaled(config.lease).total_seconds(),
        "poll_s": scenario.scaled(config.poll).total_seconds(),
        "reap_every_s": scenario.scaled(config.reap_every).total_seconds(),
        "retry_base_s": scenario.scaled(config.backoff.base).total_seconds(),
        "retry_cap_s": scenario.scaled(config.backoff.cap).total_seconds(),
    }
    return Terms(
        **real,
        retry_jitter=config.backoff.jitter,
        attempts_max=config.attempts_max,
        slack_s=slack_s,
    )


def strangers(scenario: Scenario, history: History) -> Iterator[str]:
    """Name the upstream's callers that are no process of ours, and calls for no job of ours."""
    names = set(scenario.names())
    jobs = {entry.a["job"] for entry in history.of("rows", "job")}
    for request in history.of("upstream", "request"):
        if request.p not in names:
            yield f"the upstream was called by a stranger: {request.p}"
        if request.a["job"] not in jobs:
            yield f"the upstream was called for job {request.a['job']}, which is in no table"
