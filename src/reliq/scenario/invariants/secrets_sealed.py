"""
A secret field is in no payload in clear; where all was sealed anew, in the end none names an older key.

Judged are the payloads of jobs, and of the final jobs that families wait for.
"""

from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every payload with a secret that was written, and the last of each row."""
    last: dict[tuple[str, int], Entry] = {}
    for stored in history.of("wal", "sealed"):
        last[stored.a["of"], stored.a["job"]] = stored
        is_clear, who = stored.a["clear"], f"the {stored.a['of']} {stored.a['job']}"
        yield Violation(f"{who} holds a secret in clear", (stored,)) if is_clear else None
    for done in history.of("driver", "rekeyed"):
        for stored in last.values() if done.a["code"] == 0 else ():
            if others := set(filter(None, stored.a["keys"].split(","))) - {done.a["key"]}:
                who = f"the {stored.a['of']} {stored.a['job']}"
                text = f"all was said to be sealed with {done.a['key']}, and {who} names {others}"
                yield Violation(text, (stored, done))


INVARIANT = Invariant(
    name="secrets.sealed",
    promise="secret fields are sealed in every payload, and after a rekey with the newest key",
    check=check,
)
