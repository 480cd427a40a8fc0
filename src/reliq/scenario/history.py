"""
What outsiders saw of a run, in one order; `docs/history.md` lists every entry and field.

| src        | who says so                                                          |
|------------|----------------------------------------------------------------------|
| `wal`      | Postgres: what was committed, in the order of the commits            |
| `process`  | the operating system, and the lines that the processes wrote         |
| `upstream` | the service that the jobs call                                       |
| `mail`     | the mail server that the jobs hand mails to                          |
| `driver`   | the senders and operators                                            |
| `fault`    | the harness: what it broke                                           |
| `canary`   | the machine: how late it was                                         |
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

SECOND: Final = 1_000_000_000
"""Of `t`, in nanoseconds."""

DB_SECOND: Final = 1_000_000
"""Of the database's moments (`db`, `run_at`, `lease_until`), in microseconds."""

ENDS: Final = ("succeeded", "failed", "again", "release", "lease-lost", "cancelled")
"""How a claim ends; `dead` is said besides."""

FOREVER: Final = 2**63 - 1
"""A moment after every `t`."""

_LOAD: Final = frozenset({"deliver", "enqueue", "requeue", "cancel", "rekey", "release", "heal"})

_TO_QUEUED: Final = ("job", "failed", "again", "release", "lease-lost")


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
class ScheduleTerms:
    """A schedule of the run: a slot every so many seconds, and what becomes of missed ones."""

    name: str
    every_s: float
    missed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTerms:
    """A kind's own pauses, and by which share they are spread."""

    pauses_s: tuple[float, ...]
    jitter: float


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
    retry_after_max_s: float = 86_400.0
    schedule_every_s: float = 30.0
    time_limit_s: float = 300.0
    grace_s: float = 5.0
    store_deadline_s: float = 5.0
    concurrency: int = 1
    schedules: tuple[ScheduleTerms, ...] = ()
    policies: Mapping[str, TableTerms] = field(default_factory=dict)

    def pause(self, attempt: int, kind: str = "") -> tuple[float, float]:
        """Return the shortest and the longest pause after attempt `attempt` failed."""
        jitter = self.jitter(kind)
        if table := self.policies.get(kind):
            middle = table.pauses_s[min(attempt, len(table.pauses_s)) - 1]
        else:
            middle = min(
                self.retry_cap_s / (1 + jitter), self.retry_base_s * 2.0 ** min(attempt - 1, 60)
            )
        return middle * (1 - jitter), middle * (1 + jitter)

    def jitter(self, kind: str = "") -> float:
        """Return the share by which the pauses of a kind are spread."""
        return self.policies[kind].jitter if kind in self.policies else self.retry_jitter

    def plain(self) -> dict[str, Any]:
        """Return them as plain values, for the heading of a history."""
        return asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Terms":
        """Read what `plain` wrote."""
        schedules = tuple(ScheduleTerms(**one) for one in plain.get("schedules", ()))
        policies = {
            kind: TableTerms(pauses_s=tuple(one["pauses_s"]), jitter=one["jitter"])
            for kind, one in plain.get("policies", {}).items()
        }
        return cls(**{**plain, "schedules": schedules, "policies": policies})


@dataclass(frozen=True, slots=True)
class Holding:
    """One claim of a job, its renewals, and how it ended; None while it runs."""

    claim: Entry
    renewals: Sequence[Entry]
    end: Entry | None

    @property
    def job(self) -> int:
        """The job that is held."""
        job: int = self.claim.a["job"]
        return job

    @property
    def fence(self) -> int:
        """The fence under which it is held."""
        fence: int = self.claim.a["fence"]
        return fence

    @property
    def lease_until(self) -> int:
        """Until when it was granted at last, by the database's clock."""
        moment: int = (self.renewals or [self.claim])[-1].a["lease_until"]
        return moment


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
        """Whether it got a whole answer that was a success (or, with `well=False`, was not)."""
        response = self.response
        if response is None or response.a.get("how", "whole") != "whole":
            return False
        return (response.a["status"] < 300) is well  # noqa: PLR2004 - HTTP's own


@dataclass(frozen=True, slots=True)
class Harm:
    """A fault, and the `t` at which it was over: at once, when healed, or never."""

    fault: Entry
    until: int


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
        return found if len(names) == 1 else sorted(found, key=lambda entry: entry.i)

    def holdings(self) -> dict[int, list[Holding]]:
        """Return the claims of each job, in the order in which they were committed."""
        ends = {(end.a["job"], end.a["fence"]): end for end in self.of("wal", *ENDS)}
        renewals = defaultdict(list)
        for renewal in self.of("wal", "renew"):
            renewals[renewal.a["job"], renewal.a["fence"]].append(renewal)
        found = defaultdict(list)
        for claim in self.of("wal", "claim"):
            key = claim.a["job"], claim.a["fence"]
            found[claim.a["job"]].append(Holding(claim, renewals.get(key, []), ends.get(key)))
        return found

    def successions(self) -> Iterator[tuple[Holding, Holding | None]]:
        """Pair every claim with the next one of its job."""
        for held in self.holdings().values():
            yield from zip(held, [*held[1:], None], strict=True)

    def calls(self) -> dict[int, list[Call]]:
        """Return the upstream's calls for each job, in the order they came."""
        answers = {answer.a["call"]: answer for answer in self.of("upstream", "response")}
        found = defaultdict(list)
        for request in self.of("upstream", "request"):
            found[request.a["job"]].append(Call(request, answers.get(request.a["call"])))
        return found

    def waits(self) -> Iterator[tuple[Entry, Entry | None]]:
        """Pair what made a job wait for its `run_at` with the claim that ended the wait."""
        made: dict[int, Entry] = {}
        for entry in self.of("wal", *_TO_QUEUED, "claim", "dead", "write", "gone"):
            job = entry.a["job"]
            if entry.e == "claim":
                if job in made:
                    yield made.pop(job), entry
            elif entry.e in _TO_QUEUED and entry.a.get("run_at") is not None:
                made[job] = entry
            elif (
                entry.e != "write" or "run_at" in entry.a["columns"] or entry.a["state"] != "queued"
            ):
                made.pop(job, None)
        for entry in made.values():
            yield entry, None

    def harms(self) -> list[Harm]:
        """
        Return every fault and how long it lasted; one that a signal undoes lasts until then.

        What a step sends or asks for is load, and harms nobody.
        """
        harms: list[Harm] = []
        lasting: dict[tuple[str, str], list[int]] = defaultdict(list)
        for entry in self.of("fault", "fired", "healed"):
            if entry.a.get("do") in _LOAD:
                continue
            over = "STOP" if entry.a.get("sig") == "CONT" else entry.a["step"]
            if entry.e == "healed" or entry.a.get("sig") == "CONT":
                for n in lasting.pop((over, entry.a["to"]), ()):
                    if harms[n].until in {harms[n].fault.t, FOREVER}:
                        harms[n] = Harm(harms[n].fault, entry.t)
            if entry.e == "fired":
                stops = entry.a.get("sig") == "STOP"
                for key in (entry.a["step"], "STOP") if stops else (entry.a["step"],):
                    lasting[key, entry.a["to"]].append(len(harms))
                harms.append(Harm(entry, FOREVER if stops else entry.t))
        return harms

    def signals(self, *signals: str) -> list[Entry]:
        """List the signals of these sorts that hit somebody."""
        return [x for x in self.of("fault", "fired") if x.a["hits"] and x.a.get("sig") in signals]


def moment(of_db: int, before: Entry, after: Entry | None = None) -> int:
    """
    Return the `t` at which the database's clock showed `of_db`; rather too late than too early.

    Reckoned from entries that have both clocks, so that a clock that was set in between moves
    it to the later side.
    """
    found: int = before.t + (of_db - before.a["db"]) * (SECOND // DB_SECOND)
    if after is not None:
        found = max(found, after.t - (after.a["db"] - of_db) * (SECOND // DB_SECOND))
    return found


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Merge what several sources saw: by moment; number the places anew."""
    merged = sorted(entries, key=lambda entry: entry.t)
    return [Entry(i, x.t, x.src, x.p, x.e, x.a) for i, x in enumerate(merged)]
