"""
What outsiders saw of a run, in one order.

| src        | e                                                      | who says so                |
|------------|--------------------------------------------------------|----------------------------|
| `driver`   | `delivery`                                             | the senders                |
| `upstream` | `request`, `response`                                  | the upstream's log         |
| `rows`     | `event`, `job`, `claim`, `succeeded`, `failed`, `again`, `release`, `lease-lost`, `dead`, `effect` | the tables at the end |
| `process`  | `started`, `exited`                                    | the operating system       |
| `fault`    | `fired`                                                | the harness                |

`t` is `CLOCK_MONOTONIC` in nanoseconds. Rows carry the database's clock, which is mapped onto it
by one constant: between two rows the distance is exact, between a row and another source it is
as good as the mapping (`clock_error`, a millisecond or two).
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

SECOND: Final = 1_000_000_000

ENDS: Final = ("succeeded", "failed", "again", "release", "lease-lost")
"""How the rows say that a claim ended; `dead` is said besides."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was seen: place in the order, moment, source, process, name, fields."""

    i: int
    t: int
    src: str
    p: str
    e: str
    a: Mapping[str, Any]

    def seconds_to(self, later: "Entry") -> float:
        """Return how many seconds another entry is later than this one."""
        return (later.t - self.t) / SECOND

    def line(self) -> str:
        """Write it as one line of `history.jsonl`."""
        head = {"i": self.i, "t": self.t, "src": self.src, "p": self.p, "e": self.e}
        return json.dumps(head | dict(self.a), ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """
    What the product was set to, in real seconds, and what the machine added.

    `slack_s` is granted on top of every upper bound, never to a lower one.
    """

    lease_s: float
    poll_s: float
    reap_every_s: float
    retry_base_s: float
    retry_cap_s: float
    retry_jitter: float
    attempts_max: int
    slack_s: float

    def pause(self, attempt: int) -> tuple[float, float]:
        """Return the shortest and the longest pause after attempt `attempt` failed."""
        middle = min(
            self.retry_cap_s / (1 + self.retry_jitter),
            self.retry_base_s * 2.0 ** min(attempt - 1, 60),
        )
        return middle * (1 - self.retry_jitter), middle * (1 + self.retry_jitter)


@dataclass(frozen=True, slots=True)
class Holding:
    """One claim of a job, and how the rows say that it ended."""

    claim: Entry
    end: Entry | None


@dataclass(frozen=True, slots=True)
class Call:
    """One request at the upstream and what it was answered; None if it never was."""

    request: Entry
    response: Entry | None

    @property
    def attempt(self) -> int:
        """The attempt that made it."""
        attempt: int = self.request.a["attempt"]
        return attempt

    def is_answered(self, *, well: bool) -> bool:
        """Whether the answer was a success (or, with `well=False`, a failure)."""
        return self.response is not None and (self.response.a["status"] < 300) is well  # noqa: PLR2004


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All entries, in order, and the terms under which they came about."""

    entries: Sequence[Entry]
    terms: Terms
    _by_name: Mapping[tuple[str, str], list[Entry]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_name = defaultdict(list)
        for entry in self.entries:
            by_name[entry.src, entry.e].append(entry)
        object.__setattr__(self, "_by_name", by_name)

    def of(self, src: str, *names: str) -> list[Entry]:
        """List the entries of a source with one of these names, in order."""
        found = [entry for name in names for entry in self._by_name.get((src, name), ())]
        return sorted(found, key=lambda entry: entry.i)

    def holdings(self) -> dict[int, list[Holding]]:
        """Return the claims of each job by fence, each with its end."""
        ends = {(end.a["job"], end.a["fence"]): end for end in self.of("rows", *ENDS)}
        found = defaultdict(list)
        for claim in sorted(self.of("rows", "claim"), key=lambda entry: entry.a["fence"]):
            found[claim.a["job"]].append(
                Holding(claim, ends.get((claim.a["job"], claim.a["fence"])))
            )
        return found

    def calls(self) -> dict[int, list[Call]]:
        """Return the upstream's calls for each job, in the order they came."""
        answers = {answer.a["call"]: answer for answer in self.of("upstream", "response")}
        found = defaultdict(list)
        for request in self.of("upstream", "request"):
            found[request.a["job"]].append(Call(request, answers.get(request.a["call"])))
        return found

    def successions(self) -> Iterator[tuple[Holding, Holding | None]]:
        """Pair every claim with the next one of its job."""
        for held in self.holdings().values():
            yield from zip(held, [*held[1:], None], strict=True)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Merge what several sources saw: by moment; number the places anew."""
    merged = sorted(entries, key=lambda entry: entry.t)
    return [Entry(i, x.t, x.src, x.p, x.e, x.a) for i, x in enumerate(merged)]
