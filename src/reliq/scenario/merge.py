"""Several witnesses, one history: put what was seen into order, and say under which terms."""

from collections.abc import Iterable
from dataclasses import replace

from reliq.scenario.history import Entry, History, ScheduleTerms, TableTerms, Terms, in_order
from reliq.scenario.model import Scenario


def merge(scenario: Scenario, seen: Iterable[Entry], *, slack_s: float) -> History:
    """Put what all witnesses saw into one history; faults learn what their victims held."""
    history = History(entries=in_order(seen), terms=terms(scenario, slack_s))
    entries = [
        replace(x, a={**x.a, "victim_live_leases": live_leases(history, x)})
        if (x.src, x.e) == ("fault", "fired") and x.a["do"] == "signal"
        else x
        for x in history.entries
    ]
    return History(entries=entries, terms=history.terms)


def live_leases(history: History, fault: Entry) -> int:
    """Count the claims that the processes a fault was meant for held at that moment."""
    victims = set(fault.a["to"].split(","))
    return sum(
        held.claim.p in victims
        and held.claim.t <= fault.t
        and (held.end is None or held.end.t > fault.t)
        for holdings in history.holdings().values()
        for held in holdings
    )


def terms(scenario: Scenario, slack_s: float) -> Terms:
    """Return what the product was set to, in real seconds."""
    config = scenario.system.config
    scaled = {
        "lease_s": config.lease,
        "poll_s": config.poll,
        "reap_every_s": config.reap_every,
        "schedule_every_s": config.schedule_every,
        "time_limit_s": config.time_limit,
        "retry_base_s": config.backoff.base,
        "retry_cap_s": config.backoff.cap,
        "retry_after_max_s": config.retry_after_max,
    }
    return Terms(
        **{name: scenario.scaled(value).total_seconds() for name, value in scaled.items()},
        grace_s=config.grace.total_seconds(),
        store_deadline_s=config.store_deadline.total_seconds(),
        retry_jitter=config.backoff.jitter,
        attempts_max=config.attempts_max,
        concurrency=scenario.system.worker.concurrency,
        schedules=tuple(
            ScheduleTerms(
                name=schedule.name,
                every_s=scenario.scaled(schedule.every).total_seconds(),
                missed=schedule.missed,
            )
            for schedule in scenario.system.schedules
        ),
        policies={
            kind: TableTerms(
                pauses_s=tuple(scenario.scaled(pause).total_seconds() for pause in table.pauses),
                jitter=table.jitter,
            )
            for kind, table in scenario.system.policies.items()
        },
        slack_s=slack_s,
    )
