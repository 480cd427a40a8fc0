"""The product's settings, as environment variables, in real time."""

import json
from datetime import timedelta

from reliq.domain.duration import format_duration
from reliq.scenario.model import Scenario


def settings(scenario: Scenario) -> dict[str, str]:
    """Return what every process of a run is set to; product time is scaled."""
    config = scenario.system.config
    scaled = {
        "RELIQ_LEASE": config.lease,
        "RELIQ_POLL": config.poll,
        "RELIQ_REAP_EVERY": config.reap_every,
        "RELIQ_SCHEDULE_EVERY": config.schedule_every,
        "RELIQ_TIME_LIMIT": config.time_limit,
        "RELIQ_RETRY_BASE": config.backoff.base,
        "RELIQ_RETRY_CAP": config.backoff.cap,
        "RELIQ_RETRY_AFTER_MAX": config.retry_after_max,
    }
    if config.prune_every is not None:
        kept = dict.fromkeys(("RELIQ_KEEP_JOBS", "RELIQ_KEEP_BODIES"), config.keep)
        scaled |= {"RELIQ_PRUNE_EVERY": config.prune_every, **kept}
    real = {
        "RELIQ_GRACE": config.grace,
        "RELIQ_DB_BUDGET": config.db_budget,
        "RELIQ_STORE_DEADLINE": config.store_deadline,
    }
    points = sorted({step.when.point for step in scenario.steps if step.when.point is not None})
    schedules = [
        {
            "id": schedule.name, "missed": schedule.missed,
            "every_s": scenario.scaled(schedule.every).total_seconds(),
        }
        for schedule in scenario.system.schedules
    ]  # fmt: skip
    policies = {
        kind: {
            "pauses_s": [scenario.scaled(pause).total_seconds() for pause in table.pauses],
            "jitter": table.jitter,
        }
        for kind, table in scenario.system.policies.items()
    }
    return {
        **{
            name: format_duration(_microseconds(scenario.scaled(it))) for name, it in scaled.items()
        },
        **{name: format_duration(it) for name, it in real.items()},
        "RELIQ_APP": scenario.system.app,
        "RELIQ_RETRY_ATTEMPTS": str(config.attempts_max),
        "RELIQ_RETRY_JITTER": str(config.backoff.jitter),
        "RELIQ_PRUNE": "off" if config.prune_every is None else "on",
        "RELIQ_LOG": "json",
        "RELIQ_MAIL_UNKNOWN": config.mail_unknown,
        "RELIQ_ENCRYPTION_KEYS": config.encryption_keys,  # empty is not set
        "DRILL_POINTS": ",".join(points),
        "DRILL_SCHEDULES": json.dumps(schedules),
        "DRILL_POLICIES": json.dumps(policies),
    }


def _microseconds(length: timedelta) -> timedelta:
    return max(length, timedelta(microseconds=1))
