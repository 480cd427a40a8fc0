"""
What every move is made of: the same call to the shipped SQL and to the model, then all rows compared.

Leases are never thrown away: each one that was ever given is used again and again, so that
whatever forgets to ask for the fence is found out. A move that needs a lease makes one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine, invariant

from tests.model.database import Database
from tests.model.draws import (
    ALERT_WINDOW,
    ALERTS,
    HEAD,
    KEY_TTL,
    KINDS,
    LANES,
    LEASE,
    MOST,
    NOTHING,
    SECOND,
    WALK,
    WORKERS,
)
from tests.model.rows import Held, Job, Lane, Position, Tables
from tests.model.wishes import Back, Burial, Wish

if TYPE_CHECKING:
    from tests.model.machine import Model

POOLS = ("held", "old", "held", "old", "dead", "over", "any")


class Player(RuleBasedStateMachine):
    """Makes calls, and compares."""

    model: "Model"

    def __init__(self, database: Database) -> None:
        super().__init__()
        database.empty()
        self.database = database
        self.leases: list[Held] = []
        self.cursors: dict[Lane, Position] = {}
        self.is_compared = False
        self.steps = -1  # rows are equal before the first one, too

    def call(self, name: str, *arguments: object, expected: Sequence[Any]) -> list[Any]:
        """Run a statement; it answers as the model did."""
        self.is_compared = False
        answer = self.database.call(name, self.model.now, *arguments)
        note((name, arguments, answer))
        if sorted(answer) != sorted(expected):
            raise self.database.difference(
                f"{name}: Postgres answers {answer}, the model {expected}"
            )
        return answer

    @invariant()
    def rows_are_equal(self) -> None:
        self.steps += 1
        if self.is_compared:
            return
        tables, expected = self.database.read(), self.model.tables()
        if tables != expected:
            raise self.database.difference("\n".join(different(tables, expected)))
        self.is_compared = True

    def running(self) -> list[Job]:
        return [job for job in self.jobs() if job.is_running]

    def jobs(self) -> Collection[Job]:
        return self.model.jobs.values()

    def leases_of(self, picks: Sequence[int]) -> list[Held]:
        """
        Choose leases by number: held ones, old ones of jobs that run, the last ones of jobs that
        are dead or do not run, or any ever given; one of each job at most, as the worker promises
        of its batches.

        Where nothing runs, or no lease was lost, that is made so first.
        """
        asked = [POOLS[pick % len(POOLS)] for pick in picks]
        if "old" in asked and not self.old_leases():
            self.lose_leases()
        if not self.running():
            self.claim_something()
        pools = {
            "held": [(job.id, job.fence) for job in self.running()],
            "old": self.old_leases(),
            "dead": [(job.id, job.fence) for job in self.jobs() if job.state == "dead"],
            "over": [
                (job.id, job.fence) for job in self.jobs() if job.fence and not job.is_running
            ],
            "any": self.leases,
        }
        chosen: dict[int, int] = {}
        for pick, name in zip(picks, asked, strict=True):
            pool = pools[name] or self.leases
            job_id, fence = pool[pick // len(POOLS) % len(pool)]
            chosen.setdefault(job_id, fence)
        return list(chosen.items())

    def live_lease(self, pick: int) -> Held:
        """Choose one of the held ones."""
        [held] = self.leases_of([pick * len(POOLS)])
        return held

    def claim_something(self) -> None:
        """Have jobs run, whatever limits there are: a worker may not have heard of them yet."""
        if not any(job.ready and job.run_at <= self.model.now for job in self.jobs()):
            self.enqueue_job(Wish(kind="job", payload={}))
        worker = WORKERS[len(self.leases) % 2]
        if not self.claim_due(2, worker, KINDS[0]):
            self.claim(2, worker, None, [(lane, HEAD) for lane in LANES], KINDS[0])

    def old_leases(self) -> list[Held]:
        """Return the earlier leases of jobs that run."""
        fences = {job.id: job.fence for job in self.running()}
        return [
            (job_id, fence) for job_id, fence in self.leases if fence < fences.get(job_id, fence)
        ]

    def lose_leases(self) -> None:
        """Whatever runs falls silent, and somebody claims it anew."""
        self.model.now += LEASE
        self.reap_jobs()
        self.claim_due(3, WORKERS[len(self.leases) % 2], KINDS[0])

    # Single calls, and what follows them.

    def enqueue_job(self, job: Wish) -> None:
        what, when = (job.kind, job.payload), (job.run_in, job.queue, job.priority)
        expected = [self.model.enqueue_job(job, KEY_TTL)]
        if job.key is job.group is None:
            self.call("insert_job", *what, *when, expected=expected)
        else:
            group = (job.group, job.running)
            self.call("enqueue_job", *what, job.key, *when, KEY_TTL, *group, expected=expected)

    def claim_due(
        self, places: int, worker: str, kinds: dict[str, int], *,
        lanes: Sequence[Lane] = LANES, cursors: Mapping[Lane, Position] = {},
    ) -> list[Held]:  # fmt: skip
        """Claim from lane after lane, with one call for neighbours without limits."""
        order = [(lane, cursors.get(lane, HEAD)) for lane in lanes]
        claimed: list[Held] = []
        for queue, part in groupby(
            order, lambda each: each[0][0] if each[0][0] in self.model.limits else None
        ):
            if places > len(claimed):
                claimed += self.claim(places - len(claimed), worker, queue, list(part), kinds)
        return claimed

    def claim(
        self, places: int, worker: str, limited: str | None,
        lanes: Sequence[tuple[Lane, Position]], kinds: dict[str, int],
    ) -> list[Held]:  # fmt: skip
        free: list[int] = []
        if limited is None:
            name, queues = "claim_jobs", [queue for (queue, _), _ in lanes]
            claimed = self.model.claim_jobs(places, LEASE, worker, lanes, kinds)
        else:
            name, queues = "claim_limited_jobs", limited
            within = [(priority, after) for (_, priority), after in lanes]
            claimed, free = self.model.claim_limited_jobs(
                places, LEASE, worker, limited, within, kinds
            )
        for job in claimed:
            self.leases.append((job.id, job.fence))
            self.cursors[job.lane] = job.position
        answer = self.call(
            name, places, LEASE, worker, queues, [priority for (_, priority), _ in lanes],
            [run_at for _, (run_at, _) in lanes], [job_id for _, (_, job_id) in lanes],
            list(kinds), list(kinds.values()),
            expected=[
                (
                    job.id, job.fence, job.kind, job.key, job.payload, job.attempt,
                    job.attempts_max, job.lost_leases, job.event_id, job.queue, job.priority,
                    job.run_at, self.model.now - job.run_at, job.group_key, job.parent_id,
                )
                for job in claimed
            ],
        )  # fmt: skip
        if limited is not None:
            self.model.fill_places(limited, zip(free, (row[:2] for row in answer), strict=False))
        return [(job.id, job.fence) for job in claimed]

    def isolate_job(self, held: Held) -> None:
        self.call("isolate_job", *held, LEASE, expected=ids(self.model.isolate_job(held, LEASE)))

    def settle_succeeded(self, held: Sequence[Held], *, dies: bool = False) -> None:
        kept = self.model.settle_succeeded(held)
        self.call("settle_succeeded", *pairs(held), expected=ids(kept))
        self.follow(kept, dict.fromkeys(kept, False), dies=dies)

    def settle_queued(self, endings: Mapping[Held, Back], *, dies: bool = False) -> None:
        ends = endings.values()
        kept = self.model.settle_queued(endings)
        self.call(
            "settle_queued", *pairs(endings), [end.after for end in ends],
            [end.ended for end in ends], [end.error for end in ends],
            [end.status for end in ends], [None for _ in ends],
            expected=[(job_id, self.model.jobs[job_id].state == "cancelled") for job_id in kept],
        )  # fmt: skip
        self.follow(kept, blame(endings), dies=dies)

    def settle_dead(self, endings: Mapping[Held, Burial], *, dies: bool = False) -> None:
        ends = endings.values()
        buried = self.model.settle_dead(endings)
        self.call(
            "settle_dead", *pairs(endings),
            [end.reason for end in ends], [end.ended for end in ends],
            [end.error for end in ends], [end.status for end in ends],
            [end.fingerprint for end in ends], ALERTS, ALERT_WINDOW,
            [None for _ in ends],
            expected=buried,
        )  # fmt: skip
        self.follow([job_id for job_id, _ in buried], blame(endings), dies=dies)

    def follow(self, kept: Iterable[int], failed: Mapping[int, bool], *, dies: bool) -> None:
        """Groups go on, families end, breakers are told, unless the worker dies before."""
        if dies:
            return
        jobs = [self.model.jobs[job_id] for job_id in kept]
        over = [job for job in jobs if not job.is_open]
        if groups := sorted({job.group_key for job in over if job.group_key is not None}):
            self.advance_groups(groups)
        if parents := sorted({job.parent_id for job in over if job.parent_id is not None}):
            self.end_families(parents)
        told = [
            (job.queue, (job.id, job.fence), failed[job.id])
            for job in jobs
            if job.queue in self.model.limits and job.id in failed
        ]
        if told:
            self.call(
                "note_endings", [queue for queue, _, _ in told], *pairs(held for _, held, _ in told),
                [is_failed for *_, is_failed in told],
                expected=self.model.note_endings(told),
            )  # fmt: skip

    def advance_groups(self, groups: Sequence[str]) -> None:
        self.call("advance_groups", groups, expected=ids([self.model.advance_groups(groups)]))

    def end_families(self, parents: Sequence[int]) -> None:
        self.call("end_families", parents, expected=self.model.end_families(parents))

    def follow_up(self) -> None:
        """On a beat: what workers who died did not do for their groups."""
        if any(job.group_key is not None for job in self.jobs()):
            advanced = self.model.advance_stalled_groups()
            self.call("advance_stalled_groups", expected=[(advanced,)])

    def end_open_families(self) -> None:
        """On a beat: what they did not do for their families, one of which may have ended meanwhile."""
        if parents := [*self.model.parents]:
            self.call("show_family", parents[-1], expected=self.model.show_family(parents[-1]))
            found = self.model.find_families(0, MOST)
            self.call("find_families", 0, MOST, expected=ids(found))
            self.end_families([*found, parents[0]])

    def reap_jobs(self, *, dies: bool = False) -> None:
        reaped = self.model.reap_jobs()
        self.call("reap_jobs", WALK, self.model.overlap, ALERTS, ALERT_WINDOW, expected=reaped)
        if reaped and not dies:
            self.follow_up()

    def find_lanes(self) -> list[tuple[str, int, list[str], list[str]]]:
        found = self.model.find_lanes()
        self.call("find_lanes", expected=found)
        return found

    def cancel_jobs(self, chosen: Sequence[int], by: str) -> None:
        expected = self.model.cancel_jobs(chosen, by, "why")
        self.call("cancel_jobs", chosen, by, "why", expected=expected)

    def requeue_job(self, job_id: int, *, even_ignored: bool) -> int | None:
        """As the desk does: its group is told at once."""
        expected = self.model.requeue_job(job_id, "ann", "fixed", even_ignored=even_ignored)
        self.call("requeue_job", job_id, "ann", "fixed", even_ignored, expected=expected)
        for _, made, *_, group in expected:
            if made is not None and group is not None:
                self.advance_groups([group])
            return made
        return None

    def requeue_jobs(
        self, letters: Sequence[int], apart: timedelta = NOTHING, *, even_ignored: bool
    ) -> None:
        expected = self.model.requeue_jobs(
            letters, "ann", "fixed", SECOND, apart, even_ignored=even_ignored
        )
        self.call(
            "requeue_jobs", letters, "ann", "fixed", SECOND, apart, even_ignored, expected=expected
        )
        self.follow_up()
        self.call("find_requeued", letters, expected=self.model.find_requeued(letters))


def blame(endings: Mapping[Held, Back] | Mapping[Held, Burial]) -> dict[int, bool]:
    """Of which jobs an upstream is to blame for the end of the attempt."""
    return {job_id: True for (job_id, _), end in endings.items() if end.blames_upstream}


def pairs(held: Iterable[Held]) -> tuple[list[int], list[int]]:
    """As two arrays, the way the statements take them."""
    held = list(held)
    return [job_id for job_id, _ in held], [fence for _, fence in held]


def ids(found: Iterable[Any]) -> list[tuple[Any]]:
    """As rows of one column."""
    return [(each,) for each in found]


def different(tables: Tables, expected: Tables) -> Iterator[str]:
    """Name the rows that are not alike."""
    for table, rows in tables.items():
        for key in sorted(rows.keys() | expected[table].keys()):
            there, here = rows.get(key), expected[table].get(key)
            if there != here:
                yield f"{table}: Postgres has {there}\n{table}: the model has {here}"
