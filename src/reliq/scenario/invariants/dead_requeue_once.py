"""
A dead letter is made anew at most once, whoever asks how often.

Who asked heard of that one job, or was refused; nobody heard of another.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every answer about a letter for which several asked, and every job made of one."""
    letters = {x.a["job"] for x in history.of("wal", "dead")}
    made: dict[int, list[Entry]] = defaultdict(list)
    for job in history.of("wal", "job"):
        letter = job.a.get("requeued_from")
        if letter is not None:
            made[letter].append(job)
            if letter not in letters or len(made[letter]) > 1:
                text = f"job {job.a['job']} was made of job {letter}, a dead letter used or none"
                yield Violation(text, tuple(made[letter][-2:]))
    asked = Counter(x.a["job"] for x in history.of("driver", "requeued"))
    for answer in history.of("driver", "requeued"):
        new, jobs = answer.a["new"], made[answer.a["job"]]
        if new is not None and all(job.a["job"] != new for job in jobs):
            text = f"who asked for job {answer.a['job']} anew heard of job {new}, which is not it"
            yield Violation(text, (answer, *jobs[:1]))
        elif asked[answer.a["job"]] > 1:
            yield None


INVARIANT = Invariant(
    name="dead.requeue-once",
    promise="a dead job is made anew at most once, and everybody who asked hears of that one",
    check=check,
)
