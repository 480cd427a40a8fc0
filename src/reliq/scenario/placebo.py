"""
The placebo: the same scenario with all harm taken out, which must not pass for tested.

What is expected stays; that no step hit anybody does not count, for there is none. So it must be noticed by a
`sometimes` that is not met, or by a promise that had nothing to judge.
"""

from typing import Any, Final

from reliq.scenario.model import Scenario
from reliq.scenario.model.steps import Deliver, Enqueue, Load
from reliq.scenario.model.system import Processes

HARMLESS: Final = "drill.noop"
_HARMFUL: Final = frozenset(
    {
        "drill.fail",
        "drill.exit",
        "drill.burn",
        "drill.block",
        "drill.stubborn",
        "drill.poison",
        "drill.apart.exit",
        "drill.apart.crash",
        "drill.apart.hog",
    }
)
_ATTACKS: Final = frozenset({"host"})
"""Fields of payloads that are an attack, whatever they hold."""


def placebo(scenario: Scenario) -> Scenario:
    """Return it without steps, with servers that are well, senders that send once, kind jobs."""
    system = scenario.system
    changes: dict[str, Any] = {
        "upstream": [], "mail": None if system.mail is None else [],
        "receiver": _started(system.receiver), "worker": _started(system.worker),
    }  # fmt: skip
    copy: Scenario = scenario.model_copy(
        update={
            "steps": [],
            "system": system.model_copy(update=changes),
            "load": [_kind(load) for load in scenario.load],
        }
    )
    return copy


def _started(processes: Processes) -> Processes:
    changed: Processes = processes.model_copy(update={"start": "auto"})
    return changed


def _kind(load: Load) -> Load:
    deliver: Deliver | None = None
    enqueue: Enqueue | None = None
    if load.deliver is not None:
        body = _without_harm(load.deliver.body)
        deliver = load.deliver.model_copy(update={"copies": 1, "forged": None, "body": body})
    if load.enqueue is not None:
        kind = HARMLESS if _is_harmful(load.enqueue.kind) else load.enqueue.kind
        payload = _without_harm(load.enqueue.payload)
        enqueue = load.enqueue.model_copy(update={"copies": 1, "kind": kind, "payload": payload})
    return Load(deliver=deliver, enqueue=enqueue)


def _is_harmful(kind: str) -> bool:
    """Tell what does harm by itself, or has nobody to do it."""
    return kind in _HARMFUL or not kind.startswith("drill.")


def _without_harm(value: Any) -> Any:
    match value:
        case dict():
            return {
                name: HARMLESS if name == "kind" and _is_harmful(part) else _without_harm(part)
                for name, part in value.items()
                if name not in _ATTACKS
            }
        case list():
            return [_without_harm(part) for part in value]
        case _:
            return value
