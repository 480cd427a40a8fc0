"""
What the queue is to reach: each goal a number, and a verdict with its interval.

A goal about time is met when the whole 90 % interval of the paired ratios lies on its side, and
`not resolved` when the interval lies across the bound or has too few rounds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from reliq.bench.sample import Interval, Sample, interval, medians, ratios

ROUNDS_MIN: Final = 15
CORES: Final = 2
OURS: Final = "reliq"

Verdict = Literal["met", "missed", "not resolved", "not measured", "—"]
Values = Callable[[Sequence[Sample]], list[float]]


@dataclass(frozen=True, slots=True)
class Goal:
    """`values` gives one number a round; it must be at least (or at most) `must`, if there is one."""

    name: str
    values: Values
    must: float | None
    aim: float
    at_most: bool = False
    is_counted: bool = False
    """Judged by pages and statements, which have no noise: one round will do."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal and what was found."""

    goal: Goal
    found: Interval | None
    must: Verdict
    aim: Verdict


def judge(goal: Goal, samples: Sequence[Sample]) -> Judged:
    """Compare what was measured with a goal."""
    found = interval(goal.values(samples))
    return Judged(goal, found, _verdict(goal, found, goal.must), _verdict(goal, found, goal.aim))


def _verdict(goal: Goal, found: Interval | None, bound: float | None) -> Verdict:
    if found is None:
        return "not measured"
    if bound is None:
        return "—"
    low, high = (-found.high, -found.low) if goal.at_most else (found.low, found.high)
    bound = -bound if goal.at_most else bound
    if high < bound:
        return "missed"
    enough = goal.is_counted or found.pairs >= ROUNDS_MIN
    return "met" if low >= bound and enough else "not resolved"


def number(measure: str, name: str, samples: Sequence[Sample], who: str = OURS) -> list[float]:
    """Return a number of ours, round by round."""
    return [
        sample.numbers[name]
        for sample in samples
        if (sample.measure, sample.who) == (measure, who) and name in sample.numbers
    ]


def against(measure: str, name: str, other: str, samples: Sequence[Sample]) -> list[float]:
    """Return ours divided by another's."""
    return ratios(samples, measure, name, OURS, other)


def against_best(measure: str, name: str, samples: Sequence[Sample]) -> list[float]:
    """Return ours divided by the best peer's, the best being the one with the best median."""
    found = medians(samples, measure, name)
    peers = {who: value for who, value in found.items() if who not in {OURS, "raw"}}
    if not peers:
        return []
    best = (min if name.endswith("_ms") else max)(peers, key=lambda who: peers[who])
    return against(measure, name, best, samples)


def _cores(samples: Sequence[Sample]) -> list[float]:
    """Return how much of the processors' time two workers turn into jobs."""
    return [
        it.numbers["jobs_per_s"]
        * (it.numbers["client_us"] + it.numbers["server_us"])
        / (CORES * 1e6)
        for it in samples
        if (it.measure, it.who) == ("drain2", OURS) and "server_us" in it.numbers
    ]


def _within(
    measure: str, over: str, under: str, name: str, samples: Sequence[Sample]
) -> list[float]:
    return ratios(samples, measure, name, over, under)


def _quotient(
    measure: str, over: str, under: str, who: str, samples: Sequence[Sample]
) -> list[float]:
    return [
        it.numbers[over] / it.numbers[under]
        for it in samples
        if (it.measure, it.who) == (measure, who)
    ]


GOALS: Final = (
    Goal("drain, 1 process, ÷ pgqueuer", partial(against, "drain", "jobs_per_s", "pgqueuer"), 2.5, 2.5),
    Goal("drain, 1 process, ÷ graphile-worker", partial(against, "drain", "jobs_per_s", "graphile-worker"), 1.0, 1.3),
    Goal("drain, 1 process, ÷ River", partial(against, "drain", "jobs_per_s", "river"), 1.0, 1.3),
    Goal("drain, 1 process, ÷ the raw limit", partial(against, "drain", "jobs_per_s", "raw"), 0.6, 0.6),
    Goal("client µs a job", partial(number, "drain", "client_us"), 35, 15, at_most=True),
    Goal("server µs a job", partial(number, "drain", "server_us"), 30, 24, at_most=True),
    Goal("2 processes: share of two cores", _cores, 0.8, 0.9),
    Goal("latency p50, ms", partial(number, "latency", "p50_ms"), 4, 2.5, at_most=True),
    Goal("latency p99, ms", partial(number, "latency", "p99_ms"), 12, 8, at_most=True),
    Goal("latency p50 ÷ the best peer", partial(against_best, "latency", "p50_ms"), 1, 1, at_most=True),
    Goal("enqueue, 1 client, ÷ raw", partial(against, "enqueue 1", "jobs_per_s", "raw"), 0.8, 0.9),
    Goal("enqueue, 16 clients, ÷ raw", partial(against, "enqueue 16", "jobs_per_s", "raw"), 0.6, 0.85),
    Goal("enqueue with a key ÷ raw", partial(against, "enqueue keyed", "jobs_per_s", "raw"), 0.8, 0.9),
    Goal("bulk enqueue ÷ raw unnest", partial(against, "enqueue bulk", "jobs_per_s", "raw"), 0.7, 0.7),
    Goal("bulk enqueue ÷ the best peer", partial(against_best, "enqueue bulk", "jobs_per_s"), 1.5, 1.5),
    Goal("bulk enqueue, jobs/s", partial(number, "enqueue bulk", "jobs_per_s"), None, 100_000),
    Goal("pages a claimed job, full ÷ empty", partial(_within, "backlog", "full", "empty", "pages_per_job"), 1.2, 1.05, at_most=True, is_counted=True),
    Goal("pages a claimed job under a held snapshot, last ÷ first", partial(_quotient, "snapshot", "pages_per_job_last", "pages_per_job_first", "held"), 1.3, 1.1, at_most=True, is_counted=True),
    Goal("batch 1000 ÷ 100, µs a job", partial(_within, "batch", "1000", "100", "us_per_job"), 1.0, 1.0, at_most=True),
    Goal("batch 1000 ÷ 100, pages a job", partial(_within, "batch", "1000", "100", "pages_per_job"), 1.0, 1.0, at_most=True, is_counted=True),
    Goal("receiver ÷ raw inserts of the same rows", partial(against, "ingest", "stored_per_s", "raw"), 0.5, 0.8),
    Goal("memory after 1M jobs ÷ after 10k", partial(_quotient, "memory", "late_mib", "early_mib", OURS), 1.05, 1.05, at_most=True, is_counted=True),
    Goal("10 idle workers, queries/s", partial(number, "idle", "queries_per_s"), 20, 12, at_most=True, is_counted=True),
)  # fmt: skip


def judged(samples: Sequence[Sample]) -> Iterator[Judged]:
    """Judge every goal that was measured."""
    for goal in GOALS:
        if (found := judge(goal, samples)).must != "not measured":
            yield found
