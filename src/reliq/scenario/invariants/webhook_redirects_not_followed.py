"""A redirect is not followed: who is sent elsewhere does not go there."""

from collections.abc import Iterator

from reliq.scenario.history import History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every answer that points somewhere, by what its job asked for after it."""
    requests = history.of("upstream", "request")
    for answer in history.of("upstream", "response"):
        if (place := answer.a.get("location")) is None:
            continue
        job = answer.a["job"]
        went = next(
            (x for x in requests if x.i > answer.i and x.a["path"] == place and x.a["job"] == job),
            None,
        )
        text = f"job {job} was sent on to {place}, and went there"
        yield None if went is None else Violation(text, (answer, went))


INVARIANT = Invariant(
    name="webhook.redirects-not-followed",
    promise="nobody goes where a redirect points to",
    check=check,
)
