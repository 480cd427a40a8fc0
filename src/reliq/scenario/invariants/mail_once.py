"""
A mail that was taken is not sent again, and all copies of one mail have one Message-ID.

Taken is what the server has said yes to, and whose sender has heard that: it went on to its next
command. One that died in between cannot know, and may send again.
"""

from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation

TAKEN = 250


def check(history: History) -> Iterator[Violation | None]:
    """Judge every mail whose text came in."""
    answers = {x.a["mail"]: x for x in history.of("mail", "answer")}
    firsts: dict[str, Entry] = {}
    ends: dict[str, Entry] = {}
    for x in history.of("mail", "message"):
        key, answer = x.a["key"], answers.get(x.a["mail"])
        first, end = firsts.setdefault(key, x), ends.get(key)
        is_taken = answer is not None and (answer.a["code"], answer.a["how"]) == (TAKEN, "heard")
        if first.a["message_id"] != x.a["message_id"]:
            yield Violation(f"{key} was sent under another Message-ID", (first, x))
        elif end is not None and (is_taken or end.t < x.t):
            yield Violation(f"{key} was sent again, and had been taken", (first, end, x))
        else:
            yield None
        if is_taken and answer is not None:
            ends.setdefault(key, answer)


INVARIANT = Invariant(
    name="mail.once",
    promise="a mail that was taken is not sent again, and repetitions carry its Message-ID",
    check=check,
)
