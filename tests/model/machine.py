"""
A machine that plays with the queue: the same call to the shipped SQL and to the model.

After every step all rows are equal. Three things make it sharp. Leases are never thrown away:
each one that was ever given is used again and again, so that whatever forgets to ask for the
fence is found out. No game begins with empty tables, and a rule that needs a lease makes one,
because Hypothesis leaves half of the rules out of a game. And three rules go deep, because a
walk of single steps rarely takes one job through all of its attempts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reliq.domain.slots import Schedule, due_slots
from reliq.domain.when import Every
from tests.model.database import Database, Tables
from tests.model.model import Back, Burial, Held, Job, Lane, Model, Position, Wish

START = datetime(2026, 1, 1, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
NOTHING = timedelta(0)
LEASE = timedelta(seconds=30)
KEY_TTL = timedelta(minutes=10)
ALERT_WINDOW = timedelta(hours=1)
OVERLAP = timedelta(seconds=10)
WALK = 50_000
ALERTS = True

WORKERS = ("w1", "w2")
LANES: tuple[Lane, ...] = (("default", 5), ("default", 1), ("slow", 5))
HEAD: Position = (datetime(1970, 1, 1, tzinfo=UTC), 0)
"""Before every job."""

KINDS = (
    {"job": 8, "mail": 8, "alert": 8},
    {"job": 3, "mail": 5, "alert": 2},
    {"job": 2},
    {"mail": 3, "alert": 8},
)
"""What a worker has handlers for, each with the most attempts it allows."""

HEARTBEAT = Schedule(kind="job", id="heartbeat", when=Every(minutes=1))

TICKS = (MOMENT, SECOND, LEASE - MOMENT, LEASE, LEASE + MOMENT, KEY_TTL, ALERT_WINDOW)

DELAYS = (NOTHING, MOMENT, SECOND, LEASE)
ERRORS = ("it broke", "no route")
ENDED = ("failed", "again", "handed_back", "timed_out", "again", "handed_back", "cancelled")

ticks = st.sampled_from([NOTHING] * len(TICKS) + list(TICKS))
numbers = st.integers(0, 999)
workers = st.sampled_from(WORKERS)
wishes = st.sampled_from(
    [
        Wish(kind=kind, payload={"n": n}, key=key, run_in=run_in, queue=queue, priority=priority)
        for n, (kind, key, run_in, (queue, priority)) in enumerate(
            product(("job", "mail"), (None, "a", "b"), DELAYS, LANES)
        )
    ]
)
backs = st.sampled_from(
    [
        Back(after=after, ended=ended, error=error, status=status)
        for after, ended, error, status in product(DELAYS, ENDED, (None, *ERRORS), (None, 502))
    ]
)
burials = st.sampled_from(
    [
        Burial(reason=reason, error=error, status=status)
        for reason, error, status in product(("gave_up", "permanent"), ERRORS, (None, 400))
    ]
)
picks = st.lists(numbers, min_size=1, max_size=5)
"""Which leases a call names; see `QueueMachine.leases_of`."""


POOLS = ("held", "old", "held", "over", "any")


class QueueMachine(RuleBasedStateMachine):
    """Calls, at random."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        database.empty()
        self.database = database
        self.model = Model(now=START, alert_window=ALERT_WINDOW, overlap=OVERLAP)
        self.leases: list[Held] = []
        self.cursors: dict[Lane, Position] = {}
        self.is_compared = False
        self.steps = -1  # rows are equal before the first one, too

    def call(self, name: str, *arguments: object, expected: Sequence[Any]) -> None:
        """Run a statement; it answers as the model did."""
        self.is_compared = False
        answer = self.database.call(name, self.model.now, *arguments)
        note((name, arguments, answer))
        if sorted(answer) != sorted(expected):
            raise self.database.difference(
                f"{name}: Postgres answers {answer}, the model {expected}"
            )

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

    def jobs(self) -> Iterable[Job]:
        return self.model.jobs.values()

    def leases_of(self, picks: Sequence[int]) -> list[Held]:
        """
        Choose leases by number: held ones, old ones of jobs that run, the last ones of jobs that
        do not, or any ever given; one of each job at most, as the worker promises of its batches.

        Where nothing runs, or no lease was lost, that is made so first.
        """
        if any(pick % len(POOLS) == POOLS.index("old") for pick in picks) and not self.old_leases():
            self.lose_leases()
        if not self.running():
            if not any(job.ready and job.run_at <= self.model.now for job in self.jobs()):
                self.enqueue_job(Wish(kind="job", payload={}))
            self.claim_due(2, WORKERS[len(self.leases) % 2], KINDS[0])
        pools = {
            "held": [(job.id, job.fence) for job in self.running()],
            "old": self.old_leases(),
            "over": [
                (job.id, job.fence) for job in self.jobs() if job.fence and not job.is_running
            ],
            "any": self.leases,
        }
        chosen: dict[int, int] = {}
        for pick in picks:
            pool = pools[POOLS[pick % len(POOLS)]] or self.leases
            job_id, fence = pool[pick // len(POOLS) % len(pool)]
            chosen.setdefault(job_id, fence)
        return list(chosen.items())

    def old_leases(self) -> list[Held]:
        """Return the earlier leases of jobs that run."""
        jobs = self.model.jobs
        return [
            (job_id, fence)
            for job_id, fence in self.leases
            if jobs[job_id].is_running and fence < jobs[job_id].fence
        ]

    def lose_leases(self) -> None:
        """Whatever runs falls silent, and somebody claims it anew."""
        self.model.now += LEASE
        self.reap_jobs()
        self.claim_due(3, WORKERS[len(self.leases) % 2], KINDS[0])

    @initialize(alone=st.booleans())
    def begin(self, *, alone: bool) -> None:
        """Make live leases and old ones, a dead letter, and a job that is not due."""
        due = [Wish(kind="job", payload={"n": n}) for n in range(3)]
        later = Wish(kind="mail", payload={}, run_in=ALERT_WINDOW)
        self.store_event(NOTHING, None, [*due, later])
        self.claim_due(4, "w1", KINDS[0])
        if alone:
            self.isolate_job(self.leases[0])
        self.lose_leases()
        self.settle_dead({self.leases[-1]: Burial(reason="gave_up", error="no")})

    # Work comes in.

    @rule(tick=ticks, key=st.sampled_from((None, "a", "b")), jobs=st.lists(wishes, max_size=3))
    def store_event(self, tick: timedelta, key: str | None, jobs: list[Wish]) -> None:
        self.model.now += tick
        self.call(
            "store_event", "form", key, {}, b"", None, KEY_TTL,
            [job.kind for job in jobs], [job.payload for job in jobs], [job.key for job in jobs],
            [job.run_in for job in jobs], [job.queue for job in jobs],
            [job.priority for job in jobs], [None for _ in jobs], [1 for _ in jobs],
            expected=[self.model.store_event("form", key, KEY_TTL, jobs)],
        )  # fmt: skip

    @rule(tick=ticks, job=wishes, is_slot=st.booleans())
    def enqueue(self, tick: timedelta, job: Wish, *, is_slot: bool) -> None:
        """Put a job of its own or a schedule's newest slot into the queue."""
        self.model.now += tick
        if is_slot:
            [slot] = due_slots(HEARTBEAT, now=self.model.now)
            job = Wish(kind=HEARTBEAT.kind, payload={}, key=slot.key)
        self.enqueue_job(job)

    def enqueue_job(self, job: Wish) -> None:
        what, when = (job.kind, job.payload), (job.run_in, job.queue, job.priority)
        expected = [self.model.enqueue_job(job, KEY_TTL)]
        if job.key is None:
            self.call("insert_job", *what, *when, expected=expected)
        else:
            self.call("enqueue_job", *what, job.key, *when, KEY_TTL, None, 1, expected=expected)

    # A worker at work.

    @rule(
        tick=ticks,
        places=st.integers(1, 4),
        worker=workers,
        kinds=st.sampled_from(KINDS),
        turned=st.booleans(),
        behind=st.booleans(),
    )
    def claim(
        self, tick: timedelta, places: int, worker: str, kinds: dict[str, int],
        *, turned: bool, behind: bool,
    ) -> None:  # fmt: skip
        """Read the lanes in either order, from their heads or behind what was claimed last."""
        self.model.now += tick
        found = self.model.find_lanes()
        self.call("find_lanes", expected=[(*lane, False, []) for lane in found])
        self.claim_due(
            places, worker, kinds,
            lanes=sorted(found, reverse=turned),
            cursors=self.cursors if behind else {},
        )  # fmt: skip

    def claim_due(
        self, places: int, worker: str, kinds: dict[str, int], *,
        lanes: Sequence[Lane] = LANES, cursors: Mapping[Lane, Position] = {},
    ) -> list[Held]:  # fmt: skip
        after = [cursors.get(lane, HEAD) for lane in lanes]
        claimed = self.model.claim_jobs(
            places, LEASE, worker, list(zip(lanes, after, strict=True)), kinds
        )
        for job in claimed:
            self.leases.append((job.id, job.fence))
            self.cursors[job.queue, job.priority] = job.position
        self.call(
            "claim_jobs", places, LEASE, worker,
            [queue for queue, _ in lanes], [priority for _, priority in lanes],
            [run_at for run_at, _ in after], [job_id for _, job_id in after],
            list(kinds), list(kinds.values()),
            expected=[
                (
                    job.id, job.fence, job.kind, job.key, job.payload, job.attempt,
                    job.attempts_max, job.lost_leases, job.event_id, job.queue, job.priority,
                    job.run_at, self.model.now - job.run_at, None, None,
                )
                for job in claimed
            ],
        )  # fmt: skip
        return [(job.id, job.fence) for job in claimed]

    @rule(tick=ticks, picks=picks)
    def renew(self, tick: timedelta, picks: list[int]) -> None:
        self.model.now += tick
        held = self.leases_of(picks)
        kept = self.model.renew_leases(held, LEASE)
        self.call("renew_leases", *pairs(held), LEASE, expected=kept)
        self.call("find_cancelled", *pairs(held), expected=ids(self.model.find_cancelled(held)))

    @rule(pick=numbers)
    def isolate(self, pick: int) -> None:
        [held] = self.leases_of([pick])
        self.isolate_job(held)

    def isolate_job(self, held: Held) -> None:
        self.call("isolate_job", *held, LEASE, expected=ids(self.model.isolate_job(held, LEASE)))

    @rule(tick=ticks, picks=picks)
    def succeed(self, tick: timedelta, picks: list[int]) -> None:
        self.model.now += tick
        self.settle_succeeded(self.leases_of(picks))

    @rule(tick=ticks, picks=picks, first=backs, others=backs)
    def give_back(self, tick: timedelta, picks: list[int], first: Back, others: Back) -> None:
        self.model.now += tick
        held = self.leases_of(picks)
        self.settle_queued({lease: others if n else first for n, lease in enumerate(held)})

    @rule(tick=ticks, picks=picks, first=burials, others=burials)
    def bury(self, tick: timedelta, picks: list[int], first: Burial, others: Burial) -> None:
        self.model.now += tick
        held = self.leases_of(picks)
        self.settle_dead({lease: others if n else first for n, lease in enumerate(held)})

    def settle_succeeded(self, held: Sequence[Held]) -> None:
        kept = self.model.settle_succeeded(held)
        self.call("settle_succeeded", *pairs(held), expected=ids(kept))

    def settle_queued(self, endings: dict[Held, Back]) -> None:
        self.call(
            "settle_queued", *pairs(endings),
            [end.after for end in endings.values()], [end.ended for end in endings.values()],
            [end.error for end in endings.values()], [end.status for end in endings.values()],
            [None for _ in endings],
            expected=[
                (job_id, self.model.jobs[job_id].state == "cancelled")
                for job_id in self.model.settle_queued(endings)
            ],
        )  # fmt: skip

    def settle_dead(self, endings: dict[Held, Burial]) -> None:
        ends = endings.values()
        self.call(
            "settle_dead", *pairs(endings),
            [end.reason for end in ends], [end.ended for end in ends],
            [end.error for end in ends], [end.status for end in ends],
            [end.fingerprint for end in ends], ALERTS, ALERT_WINDOW,
            [None for _ in ends],
            expected=self.model.settle_dead(endings),
        )  # fmt: skip

    # Workers come and go.

    @rule(tick=ticks)
    def reap(self, tick: timedelta) -> None:
        self.model.now += tick
        self.reap_jobs()

    def reap_jobs(self) -> None:
        self.call("reap_jobs", WALK, OVERLAP, ALERTS, ALERT_WINDOW, expected=self.model.reap_jobs())

    @rule(worker=workers, picks=picks, unwanted=st.booleans())
    def hand_back_unheard(self, worker: str, picks: list[int], *, unwanted: bool) -> None:
        heard = self.leases_of(picks)
        if unwanted:
            self.cancel_jobs([job.id for job in self.running()], "ann")
        back = self.model.hand_back_unheard(worker, heard)
        self.call("hand_back_unheard", worker, *pairs(heard), expected=ids(back))

    @rule(tick=ticks, pick=numbers)
    def requeue(self, tick: timedelta, pick: int) -> None:
        """Ask for a dead letter mostly, sometimes for any job, or for one there never was."""
        self.model.now += tick
        dead = [job.id for job in self.jobs() if job.state == "dead"]
        pool = [*self.model.jobs, 0] if pick % 4 == 0 else dead
        job_id = pool[pick // 4 % len(pool)]
        self.call(
            "requeue_job", job_id, "ann", "fixed", False,  # noqa: FBT003 - a column
            expected=self.model.requeue_job(job_id, "ann", "fixed"),
        )  # fmt: skip

    @rule(tick=ticks, picks=picks, by=st.sampled_from(("ann", "bob")), held=st.booleans())
    def cancel(self, tick: timedelta, picks: list[int], by: str, *, held: bool) -> None:
        """Cancel jobs that run, or some of all, one of them perhaps that there never was."""
        self.model.now += tick
        pool = [job.id for job in self.running()] if held else [*self.model.jobs, 0]
        self.cancel_jobs([pool[pick % len(pool)] for pick in picks if pool], by)

    def cancel_jobs(self, chosen: list[int], by: str) -> None:
        expected = self.model.cancel_jobs(chosen, by, "why")
        self.call("cancel_jobs", chosen, by, "why", expected=expected)

    # What takes many steps.

    @rule(rounds=st.integers(1, 3), kinds=st.sampled_from(KINDS))
    def wear_out(self, rounds: int, kinds: dict[str, int]) -> None:
        """Whatever is due fails, over and over."""
        for _ in range(rounds):
            self.claim_due(4, "w1", kinds)
            held = [(job.id, job.fence, job.attempt >= job.attempts_max) for job in self.running()]
            tired = [(job_id, fence) for job_id, fence, is_tired in held if is_tired]
            failed = [(job_id, fence) for job_id, fence, is_tired in held if not is_tired]
            if tired:
                self.settle_dead(dict.fromkeys(tired, Burial(reason="attempts", error=ERRORS[0])))
            if failed:
                self.settle_queued(dict.fromkeys(failed, Back(after=SECOND, ended="failed")))
            self.model.now += SECOND

    @rule(rounds=st.integers(1, 3), kinds=st.sampled_from(KINDS), alone=st.booleans())
    def crash_loop(self, rounds: int, kinds: dict[str, int], *, alone: bool) -> None:
        """Whatever is due takes its worker down, over and over."""
        for _ in range(rounds):
            claimed = self.claim_due(1 if alone else 4, "w2", kinds)
            for held in claimed if alone else ():
                self.isolate_job(held)
            self.model.now += LEASE
            self.reap_jobs()

    @rule(picks=picks, rounds=st.integers(1, 2))
    def take_long(self, picks: list[int], rounds: int) -> None:
        """Work goes on behind the end of the first lease, which was renewed just in time."""
        for _ in range(rounds):
            held = self.leases_of(picks)
            self.model.now += LEASE - MOMENT
            kept = self.model.renew_leases(held, LEASE)
            self.call("renew_leases", *pairs(held), LEASE, expected=kept)
            self.model.now += MOMENT
            self.reap_jobs()


def pairs(held: Iterable[Held]) -> tuple[list[int], list[int]]:
    """As two arrays, the way the statements take them."""
    held = list(held)
    return [job_id for job_id, _ in held], [fence for _, fence in held]


def ids(found: Iterable[int]) -> list[tuple[int]]:
    """As rows of one column."""
    return [(each,) for each in found]


def different(tables: Tables, expected: Tables) -> Iterator[str]:
    """Name the rows that are not alike."""
    for table, rows in tables.items():
        for key in sorted(rows.keys() | expected[table].keys()):
            there, here = rows.get(key), expected[table].get(key)
            if there != here:
                yield f"{table}: Postgres has {there}\n{table}: the model has {here}"
