"""
A job that fans out makes each child once, and one final job when they have ended.

Its children are of the transaction in which it succeeded. A dead child that was made anew is its
family's through the new job; under `hold` one that was not holds the final job back.
"""

from collections.abc import Iterator

from reliq.domain.job import FINAL
from reliq.scenario.history import ENDS, Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation
from reliq.scenario.invariants.work_all_settle import state_after


def check(history: History) -> Iterator[Violation | None]:
    """Judge every family: how it was made, and when its final job was."""
    families = {x.a["parent"]: x for x in history.of("wal", "family")}
    succeeded = {x.a["job"]: x for x in history.of("wal", "succeeded")}
    for x in history.of("wal", "family"):
        end = succeeded.get(x.a["parent"])
        if end is None or end.a["xid"] != x.a["xid"] or families[x.a["parent"]] is not x:
            yield Violation(f"job {x.a['parent']} fanned out, and not as it succeeded", (x,))
    for parent, family in families.items():
        yield _judged(parent, family, history)


def _judged(parent: int, family: Entry, history: History) -> Violation | None:
    last: dict[int, Entry] = {}
    children: list[Entry] = []
    finals: list[Entry] = []
    remade: set[int | None] = set()
    open_then: list[Entry] = []
    for x in history.of("wal", "job", "claim", "dead", "write", *ENDS):
        if x.e == "job" and _is_final(x, family):
            finals.append(x)
            open_then = open_then or _open(last, remade, family)
        if x.e == "job" and x.a.get("parent") == parent:
            children += [x] if x.a.get("requeued_from") is None else []
            remade.add(x.a.get("requeued_from"))
            last[x.a["job"]] = x
        elif x.a["job"] in last:
            last[x.a["job"]] = x
    if strangers := [x for x in children if x.a["xid"] != family.a["xid"]]:
        return Violation(f"a child of job {parent} was made apart", (family, strangers[0]))
    if len(children) != family.a["children"]:
        return Violation(f"job {parent} has {len(children)} children", (family, *children[-1:]))
    if len(finals) > 1:
        return Violation(f"the family of job {parent} has {len(finals)} final jobs", (*finals[:2],))
    if open_then:
        text = f"the family of job {parent} had an open child when it ended"
        return Violation(text, (open_then[0], finals[0]))
    if not finals and not _open(last, remade, family):
        return Violation(f"the family of job {parent} has no final job", (family,))
    return None


def _is_final(job: Entry, family: Entry) -> bool:
    return (
        job.a["kind"] == family.a["kind"]
        and job.a["key"] == f"family:{family.a['parent']}"
        and job.a.get("requeued_from") is None
    )


def _open(last: dict[int, Entry], remade: set[int | None], family: Entry) -> list[Entry]:
    """List what holds the final job: the last entry of each child that has not ended well enough."""
    return [
        x
        for job, x in last.items()
        if (state := state_after(x)) not in FINAL
        or (state == "dead" and family.a["on_failure"] == "hold" and job not in remade)
    ]


INVARIANT = Invariant(
    name="family.finished-once",
    promise="children are made once with their parent's success, and one final job when they ended",
    check=check,
)
