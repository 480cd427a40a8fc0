"""A judgement in words, for people at a terminal, for logs, and as JSON."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from reliq.scenario.history import SECOND, Entry, History
from reliq.scenario.run import Result
from reliq.scenario.verdict import Bite, Finding, Judgement, faults_before

_VIOLATIONS_SHOWN: Final = 2
_FAULTS_SHOWN: Final = 3
_FIELDS: Final = (
    "job", "attempt", "fence", "key", "status", "outcome", "event", "state", "code", "point",
    "step", "do", "sig", "to", "hits", "stmt", "error",
)  # fmt: skip
_TEXT_MAX: Final = 60


def headline(result: Result) -> str:
    """Return the verdict in one line."""
    name, verdict = result.scenario.id, result.judgement.verdict
    return f"{verdict}: {name} (seed {result.seed}, {result.seconds:.1f} s)"


def details(result: Result, *, repeat: str) -> Iterator[str]:
    """Say what was judged, how often the faults hit, and all that a failure needs."""
    judgement = result.judgement
    yield from _judged(judgement)
    for bite in judgement.faults:
        yield f"  {_hit(bite)} fault {bite.what}: hit {bite.count}{_lacks(bite)}"
    for bite in judgement.sometimes:
        yield f"  {_hit(bite)} sometimes {bite.what}: seen {bite.count}{_lacks(bite)}"
    for doubt in judgement.doubts:
        yield f"  void because {doubt}"
    if result.history is not None:
        for finding in judgement.findings:
            if finding.violations:
                yield from _broken(finding, result.history)
    if judgement.verdict != "pass":
        yield f"  again: {repeat}"
    if result.folder is not None:
        yield f"  kept:  {result.folder}"


def repeat_command(file: Path, result: Result, postgres: str = "auto") -> str:
    """Return the command that repeats a run."""
    words = ["reliq", "scenario", "run", str(file), "--seed", str(result.seed)]
    if result.scenario.cell:
        words += [
            "--cell",
            ",".join(f"{name}={value}" for name, value in result.scenario.cell.items()),
        ]
    if postgres != "auto":
        words += ["--postgres", postgres]
    return shlex.join(words)


def as_json(result: Result, *, repeat: str) -> dict[str, Any]:
    """Return everything as plain values."""
    judgement = result.judgement
    return {
        "scenario": result.scenario.scenario,
        "cell": dict(result.scenario.cell),
        "seed": result.seed,
        "verdict": judgement.verdict,
        "seconds": round(result.seconds, 3),
        "invariants": [
            {
                "name": finding.name,
                "judged": finding.judged,
                "violations": [
                    {"text": each.text, "witnesses": [witness.i for witness in each.witnesses]}
                    for each in finding.violations
                ],
            }
            for finding in judgement.findings
        ],
        "faults": [_plain(bite) for bite in judgement.faults],
        "sometimes": [_plain(bite) for bite in judgement.sometimes],
        "doubts": list(judgement.doubts),
        "repeat": repeat,
        "folder": None if result.folder is None else str(result.folder),
    }


def _judged(judgement: Judgement) -> Iterator[str]:
    """Give each promise a line; where one is broken, the others share a line."""
    is_violated = judgement.verdict == "violated"
    if is_violated and (others := [x for x in judgement.findings if not x.violations]):
        yield "  others judged: " + ", ".join(f"{x.name} {x.judged}" for x in others)
    for finding in judgement.findings:
        if finding.violations or not is_violated:
            yield f"  {_mark(finding)} {finding.name}: judged {finding.judged}"


def _broken(finding: Finding, history: History) -> Iterator[str]:
    yield f"  broken: {finding.name}: {finding.promise}"
    start = history.entries[0]
    for violation in finding.violations[:_VIOLATIONS_SHOWN]:
        yield f"    {violation.text}"
        for witness in violation.witnesses:
            yield f"      {_line(witness, start)}"
    if (more := len(finding.violations) - _VIOLATIONS_SHOWN) > 0:
        yield f"    and {more} more"
    last = finding.violations[0].witnesses[-1]
    if faults := faults_before(history, last):
        yield "    faults before:"
        for fault in faults[-_FAULTS_SHOWN:]:
            yield f"      {_line(fault, start)}"


def _line(entry: Entry, start: Entry) -> str:
    fields = " ".join(
        f"{name}={str(entry.a[name])[:_TEXT_MAX]}"
        for name in _FIELDS
        if entry.a.get(name) not in {None, ""}
    )
    at_s = (entry.t - start.t) / SECOND
    return f"#{entry.i} {at_s:+.3f} s {entry.src} {entry.e} {entry.p} {fields}".rstrip()


def _mark(finding: Finding) -> str:
    if finding.violations:
        return "BROKEN"
    return "held  " if finding.judged else "empty "


def _hit(bite: Bite) -> str:
    return "met   " if bite.is_met else "MISSED"


def _lacks(bite: Bite) -> str:
    return f", {bite.lacks}" if bite.lacks and not bite.is_met else ""


def _plain(bite: Bite) -> dict[str, Any]:
    return {"what": bite.what, "count": bite.count, "is_met": bite.is_met, "lacks": bite.lacks}
