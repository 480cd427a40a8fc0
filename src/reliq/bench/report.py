"""What was measured, as tables for a person and as a page for the repository."""

import os
import platform
import time
from collections.abc import Iterator, Sequence

from reliq.bench.goals import Judged, judged
from reliq.bench.play import Played
from reliq.bench.sample import Sample, medians

HOW = """\
**How to read it.** Each round is one play of everyone in turn; what stands in *found* is the median of the rounds' own
ratios, which is not the ratio of the medians below. *Not resolved*: the interval lies across the bound, or there were
too few rounds. *client µs*, *server µs*: processor time of the contestant's processes and of all of Postgres, in ticks of
10 ms, for each job. *pages*: pages of tables and indexes asked for, found in memory or not. *Share of two cores*: jobs a
second times the processor time of each, of all that two processors have; counted in ticks, it can come out above 1. *raw*: the same rows
put in, or claimed and settled, by bare statements; for a delivery four inserts in a transaction, as one would write it
by hand, beside which *one statement* is the least that stores the same rows and knows of no duplicates."""

HEADS = ["goal", "must", "aim", "found (90 % interval, rounds)", "must", "aim"]


def measured(samples: Sequence[Sample]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows: for each measure and contestant the medians of its numbers."""
    rows = []
    for measure in dict.fromkeys(sample.measure for sample in samples):
        names = dict.fromkeys(
            name for sample in samples if sample.measure == measure for name in sample.numbers
        )
        found = {name: medians(samples, measure, name) for name in names}
        for who in dict.fromkeys(who for numbers in found.values() for who in numbers):
            told = [f"{name} {_short(it[who])}" for name, it in found.items() if who in it]
            rows.append([measure, who, " · ".join(told)])
    return ["measure", "who", "median over rounds"], rows


def reached(samples: Sequence[Sample]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows: every goal with what was found."""
    return HEADS, [_goal(one) for one in judged(samples)]


def page(played: Played, command: str, notes: str) -> str:
    """
    Return the page: where and when, the goals, all numbers, what cannot be compared.

    `notes` is Markdown: what holds back the goals that were missed.
    """
    return "\n".join(_page(played, command, notes))


def _page(played: Played, command: str, notes: str) -> Iterator[str]:
    yield "# Benchmarks"
    yield ""
    yield (
        f"Written by `{command}` on {time.strftime('%Y-%m-%d')}: {platform.machine()}, "
        f"{os.cpu_count()} processors shared by server and clients, Linux {platform.release()}, "
        f"PostgreSQL {played.postgres} on loopback with fsync and synchronous_commit on, Python "
        f"{platform.python_version()}. Rates belong to that machine; read the ratios, which are of "
        "rounds played side by side."
    )
    yield from ["", HOW]
    yield from ["", "## Goals", "", *_table(*reached(played.samples))]
    if notes:
        yield from ["", "## What holds back what was missed", "", notes.strip()]
    yield from ["", "![jobs done over time](benchmarks.svg)"]
    yield from ["", "## All numbers", "", *_table(*measured(played.samples))]
    yield from ["", "## Who takes part, and what cannot be compared", ""]
    head = ["who", "version", "settings", "finished jobs", "settle is fenced"]
    rows = [
        [
            str(it["name"]), str(it["version"]), str(it["settings"]),
            "kept" if it["keeps_finished"] else "**deleted**",
            "yes" if it["fenced"] else "**no**",
        ]
        for it in played.about
    ]  # fmt: skip
    yield from [*_table(head, rows), ""]


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _goal(one: Judged) -> list[str]:
    goal, found, sign = one.goal, one.found, "≤" if one.goal.at_most else "≥"
    told = (
        ""
        if found is None
        else f"{_short(found.mid)} ({_short(found.low)} to {_short(found.high)}, {found.pairs})"
    )
    return [
        goal.name, "—" if goal.must is None else f"{sign} {_short(goal.must)}", f"{sign} {_short(goal.aim)}", told,
        one.must, one.aim,
    ]  # fmt: skip


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits
