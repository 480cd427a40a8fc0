"""Every job that died is listed for a person at the end, with its reason and its error."""

from collections.abc import Iterator

from reliq.scenario.history import FOREVER, SECOND, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every job that died before the list was asked for."""
    listed = {entry.a["job"]: entry for entry in history.of("driver", "dead-listed")}
    told = {x.a["job"]: x for x in history.of("process", "job.buried") if x.a.get("error")}
    gone = {entry.a["job"]: entry for entry in history.of("wal", "gone")}
    asked = max((entry.t for entry in listed.values()), default=FOREVER)
    slack = round(history.terms.slack_s * SECOND)
    for dead in history.of("wal", "dead"):
        job, entry = dead.a["job"], listed.get(dead.a["job"])
        if job in gone:
            yield Violation(f"job {job} died and its row is gone", (dead, gone[job]))
        elif entry is None:
            if dead.t + slack <= asked:
                yield Violation(f"job {job} died and is not listed", (dead,))
        elif entry.a["reason"] != dead.a["reason"] or not entry.a["error"]:
            text = f"job {job} is listed with reason {entry.a['reason']}, error {entry.a['error']}"
            yield Violation(f"{text}, and died of {dead.a['reason']}", (dead, entry))
        elif (said := told.get(job)) and said.a["error"] != dead.a["error"]:
            yield Violation(f"job {job} is kept with another error than it died of", (dead, said))
        else:
            yield None


INVARIANT = Invariant(
    name="dead.visible",
    promise="every dead job is listed with its reason and its error, and its row is kept",
    check=check,
)
