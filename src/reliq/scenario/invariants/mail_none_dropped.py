"""
A mail of which nobody knows is sent again or held for a person, and no other is held.

Which job sends which mail is known from the ledger: who reserved its key.
"""

from collections import defaultdict
from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge how every mail ended, and every job that gave up on one."""
    answers: dict[str, list[Entry]] = defaultdict(list)
    for x in history.of("mail", "answer"):
        answers[x.a["key"]].append(x)
    jobs: dict[str, set[int]] = defaultdict(set)
    for x in history.of("wal", "effect-reserved"):
        jobs[x.a["key"]].add(x.a["job"])
    dead = {x.a["job"]: x for x in history.of("wal", "dead")}
    for key, said in answers.items():
        letters = [dead[job] for job in sorted(jobs[key]) if job in dead]
        last = said[-1]
        is_unknown = any(x.a["how"] != "heard" for x in said)
        gave_up = [x for x in letters if x.a["reason"] == "gave_up"]
        if last.a["how"] != "heard" and not letters:
            yield Violation(f"nobody knows of {key}, and nobody was told", (last,))
        elif gave_up and not is_unknown:
            yield Violation(f"{key} was held, and its server had said no", (last, gave_up[0]))
        else:
            yield None


INVARIANT = Invariant(
    name="mail.none-dropped",
    promise="a mail of which nobody knows whether it was sent is sent again or held for a person",
    check=check,
)
