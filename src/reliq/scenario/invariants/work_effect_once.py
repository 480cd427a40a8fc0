"""
A job that writes has written exactly once if it succeeded, and otherwise never.

The kinds that write by `job.transaction()` do so in the transaction of their success.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation

WRITING: Final = frozenset({"drill.write", "drill.book", "drill.stubborn", "drill.tick"})


def check(history: History) -> Iterator[Violation | None]:
    """Judge every job that has an effect, or should have one."""
    done = {x.a["job"]: x for x in history.of("wal", "succeeded")}
    effects: dict[int, list[Entry]] = defaultdict(list)
    for effect in history.of("wal", "effect"):
        effects[effect.a["job"]].append(effect)
    due = {job for job, x in done.items() if x.a["kind"] in WRITING}
    for job in sorted(due | effects.keys()):
        found, success = effects[job], done.get(job)
        if success is None:
            yield Violation(f"job {job} left an effect and has not succeeded", tuple(found[:2]))
        elif len(found) != 1:
            text = f"job {job} succeeded and left {len(found)} effects"
            yield Violation(text, (success, *found[:2]))
        elif found[0].a["attempt"] != success.a["attempt"]:
            text = f"job {job} has the effect of attempt {found[0].a['attempt']}"
            text = f"{text} and succeeded by attempt {success.a['attempt']}"
            yield Violation(text, (found[0], success))
        elif success.a["kind"] in WRITING and found[0].a["xid"] != success.a["xid"]:
            yield Violation(f"job {job} succeeded apart from its effect", (found[0], success))
        else:
            yield None


INVARIANT = Invariant(
    name="work.effect-once",
    promise="a job's effect in the database is there exactly once if it succeeded, else never",
    check=check,
)
