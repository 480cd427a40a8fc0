"""Who says that he is gone for good is called no more: not by that job, nor by those behind it."""

from collections.abc import Iterator

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation

_GONE = 410


def check(history: History) -> Iterator[Violation | None]:
    """Judge every 410 that was sent as a whole, by the requests of its job's group after it."""
    groups = {x.a["job"]: x.a.get("group_key") for x in history.of("wal", "job")}
    for gone in history.of("upstream", "response"):
        if gone.a["status"] != _GONE or gone.a["how"] != "whole":
            continue
        job = gone.a["job"]
        group = groups.get(job)
        for again in history.of("upstream", "request"):
            other = again.a["job"]
            if again.i > gone.i and (other == job or (group and groups.get(other) == group)):
                yield Violation(f"job {other} called what was gone for job {job}", (gone, again))
                break
        else:
            yield None


INVARIANT = Invariant(
    name="webhook.gone-left-alone",
    promise="an endpoint that answered 410 is called no more by the jobs of its group",
    check=check,
)
