"""
What a history proves.

| verdict    | exit | means                                                                       |
|------------|------|-----------------------------------------------------------------------------|
| `pass`     | 0    | every promise held, every fault hit, everything that had to happen happened  |
| `violated` | 1    | a promise was broken; wins over everything below                            |
| `void`     | 4    | the run proves nothing: no stage, clocks apart, a machine too noisy         |
| `vacuous`  | 3    | nothing broke, but a fault missed, a `sometimes` was not met, or an invariant had nothing to judge |

2 is for a file that does not load.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from reliq.scenario import invariants
from reliq.scenario.history import Entry, History
from reliq.scenario.invariants.kind import Violation
from reliq.scenario.matching import count, matches, overlap
from reliq.scenario.model import Scenario, Sometimes

Verdict = Literal["pass", "violated", "vacuous", "void"]

EXIT_CODES: Final[dict[Verdict, int]] = {"pass": 0, "violated": 1, "vacuous": 3, "void": 4}
_WORST_FIRST: Final[Sequence[Verdict]] = ("violated", "void", "vacuous", "pass")
_WITNESSES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise: how many things were judged by it, and which broke it."""

    name: str
    promise: str
    judged: int
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Bite:
    """One fault, or one thing that had to happen: how often it did, and whether that will do."""

    what: str
    count: int
    is_met: bool
    lacks: str = ""
    """What was wanted, or why it did not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict and everything it rests on; `doubts` make a run void."""

    verdict: Verdict
    findings: Sequence[Finding] = ()
    faults: Sequence[Bite] = ()
    sometimes: Sequence[Bite] = ()
    doubts: Sequence[str] = ()


def judge(scenario: Scenario, history: History, doubts: Sequence[str] = ()) -> Judgement:
    """Judge a history by everything that the scenario expects."""
    findings = [*_always(scenario, history), *_never(scenario, history)]
    faults = list(_faults(scenario, history))
    sometimes = [_seen(wanted, history) for wanted in scenario.expect.sometimes]
    doubts = [*doubts, *_disagreements(history)]
    verdict: Verdict = "pass"
    if any(finding.violations for finding in findings):
        verdict = "violated"
    elif doubts:
        verdict = "void"
    elif not all(bite.is_met for bite in [*faults, *sometimes]) or any(
        finding.judged == 0 for finding in findings
    ):
        verdict = "vacuous"
    return Judgement(
        verdict=verdict, findings=findings, faults=faults, sometimes=sometimes, doubts=doubts
    )


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict that speaks for several runs."""
    return min(verdicts, key=_WORST_FIRST.index, default="pass")


def _always(scenario: Scenario, history: History) -> Iterator[Finding]:
    known = invariants.load()
    for name, parameters in scenario.expect.promises():
        results = list(known[name].check(history, **parameters))
        violations = tuple(result for result in results if result is not None)
        yield Finding(name, known[name].promise, len(results), violations)


def _disagreements(history: History) -> Iterator[str]:
    """Ask the invariants of the witnesses themselves: where they disagree nothing is proven."""
    for name, invariant in invariants.load().items():
        if invariant.doubts:
            for result in invariant.check(history):
                if result is not None:
                    yield f"{name}: {result.text}"


def _seen(wanted: Sometimes, history: History) -> Bite:
    if wanted.max_overlap is not None:
        n = overlap(wanted.max_overlap, history.entries)
    else:
        assert wanted.count is not None  # noqa: S101 - the model demands one of the two
        n = count(wanted.count, history.entries)
    return Bite(wanted.what, n, wanted.is_met(n), f"wanted {wanted.bounds}")


def _never(scenario: Scenario, history: History) -> Iterator[Finding]:
    for unwanted in scenario.expect.never:
        found = [entry for entry in history.entries if matches(unwanted.count, entry)]
        violations = (
            (Violation(f"seen {len(found)} times", tuple(found[:_WITNESSES_MAX])),) if found else ()
        )
        # All entries were looked through, so it is never without something to judge.
        yield Finding(f"never: {unwanted.what}", "must not happen", 1, violations)


def _faults(scenario: Scenario, history: History) -> Iterator[Bite]:
    hits: dict[str, int] = {}
    for fault in history.of("fault", "fired", "healed"):
        hits[fault.a["step"]] = max(hits.get(fault.a["step"], 0), fault.a["hits"])
    for step in scenario.steps:
        count = hits.get(step.id, 0)
        lacks = "it hit nobody" if step.id in hits else "its trigger never came"
        yield Bite(f"step {step.id}", count, count > 0 or step.may_miss is not None, lacks)
    replies = Counter[int](reply.a["rule"] for reply in history.of("upstream", "response"))
    for n, rule in enumerate(scenario.system.upstream):
        what = f"upstream rule {n + 1} ({rule.reply.status})"
        yield Bite(what, replies[n], replies[n] > 0, "no call was left for it")
    mails = Counter[int](answer.a["rule"] for answer in history.of("mail", "answer"))
    for n, dispatch in enumerate(scenario.system.mail or ()):
        what = f"mail rule {n + 1} ({dispatch.reply})"
        yield Bite(what, mails[n], mails[n] > 0, "no mail was left for it")


def faults_before(history: History, entry: Entry) -> list[Entry]:
    """List the faults that had been done when something happened."""
    return [fault for fault in history.of("fault", "fired") if fault.t <= entry.t]
