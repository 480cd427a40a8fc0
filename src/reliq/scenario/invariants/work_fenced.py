"""
An attempt whose lease was lost changes nothing: it leaves no effect, and its job does not succeed.

A late success that slips past the fence stands in the rows as that of the attempt which runs. The
upstream finds it out: it has not answered that attempt yet.
"""

from collections.abc import Iterator

from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Invariant, Violation


def check(history: History) -> Iterator[Violation | None]:
    """Judge every attempt that lost its lease, by what its job has come to since."""
    effects = {(x.a["job"], x.a["attempt"]): x for x in history.of("rows", "effect")}
    successes = {x.a["job"]: x for x in history.of("rows", "succeeded")}
    for lost in history.of("rows", "lease-lost"):
        job, attempt = lost.a["job"], lost.a["attempt"]
        name, done = f"job {job}: attempt {attempt} lost its lease", successes.get(job)
        if effect := effects.get((job, attempt)):
            yield Violation(f"{name} and left its effect", (lost, effect))
        elif done and done.a["fence"] <= lost.a["fence"]:
            yield Violation(f"{name} and succeeded", (lost, done))
        elif done and not _is_earned(done, history):
            text = f"{name}, and the job succeeded before attempt {done.a['attempt']} was answered"
            yield Violation(text, (lost, done))
        else:
            yield None


def _is_earned(done: Entry, history: History) -> bool:
    """Say whether the attempt that succeeded had its answer; a job that calls nobody needs none."""
    calls = history.calls().get(done.a["job"])
    return calls is None or any(
        call.response and call.response.seconds_to(done) > -history.terms.slack_s
        for call in calls
        if call.attempt == done.a["attempt"] and call.is_answered(well=True)
    )


INVARIANT = Invariant(
    name="work.fenced",
    promise="an attempt whose lease was lost changes nothing",
    check=check,
)
