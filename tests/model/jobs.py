"""
What workers and callers do to single jobs.

No game begins with empty tables, because Hypothesis leaves half of the rules out of a game. Some
rules go deep, because a walk of single steps rarely takes one job through all of its attempts.
"""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from reliq.domain.slots import Schedule, due_slots
from reliq.domain.when import Every
from tests.model.draws import (
    ALERT_WINDOW,
    ERRORS,
    KEY_TTL,
    KINDS,
    LEASE,
    MOMENT,
    NOTHING,
    SECOND,
    backs,
    burials,
    dying,
    numbers,
    picks,
    ticks,
    wishes,
    workers,
)
from tests.model.player import Player, ids, pairs
from tests.model.wishes import Back, Burial, Wish, columns

HEARTBEAT = Schedule(kind="job", id="heartbeat", when=Every(minutes=1))


class JobMoves(Player):
    """Calls of a worker, and of those who give it work."""

    @initialize(alone=st.booleans())
    def begin(self, *, alone: bool) -> None:
        """Make live leases and old ones, a dead letter, and a job that is not due."""
        due = [Wish(kind="job", payload={"n": n}) for n in range(3)]
        later = Wish(kind="mail", payload={}, run_in=ALERT_WINDOW)
        self.store_event(None, [*due, later])
        self.claim_due(4, "w1", KINDS[0])
        if alone:
            self.isolate_job(self.leases[0])
        self.lose_leases()
        self.settle_dead({self.leases[-1]: Burial(reason="gave_up", error="no")})

    # Work comes in.

    @rule(
        tick=ticks,
        key=st.sampled_from((None, "a", "b")),
        jobs=st.lists(wishes, max_size=3),
        again=st.sampled_from((NOTHING, KEY_TTL)),
    )
    def receive(self, tick: timedelta, key: str | None, jobs: list[Wish], again: timedelta) -> None:
        """A delivery comes twice, while its key is kept or right after."""
        self.model.now += tick
        self.store_event(key, jobs)
        self.model.now += again
        self.store_event(key, jobs)

    def store_event(self, key: str | None, jobs: list[Wish]) -> None:
        self.call(
            "store_event", "form", key, {}, b"", None, KEY_TTL, *columns(jobs),
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

    @rule(tick=ticks, jobs=st.lists(wishes, min_size=2, max_size=4))
    def enqueue_many(self, tick: timedelta, jobs: list[Wish]) -> None:
        self.model.now += tick
        expected = self.model.enqueue_keyed_jobs(jobs, KEY_TTL)
        self.call("enqueue_keyed_jobs", *columns(jobs), KEY_TTL, expected=expected)

    # A worker at work.

    @rule(
        tick=ticks,
        places=st.integers(1, 4),
        worker=workers,
        kinds=st.sampled_from(KINDS),
        turned=st.booleans(),
        behind=st.booleans(),
    )
    def claim_found(
        self, tick: timedelta, places: int, worker: str, kinds: dict[str, int],
        *, turned: bool, behind: bool,
    ) -> None:  # fmt: skip
        """Read the lanes in either order, from their heads or behind what was claimed last."""
        self.model.now += tick
        found = self.find_lanes()
        self.claim_due(
            places, worker,
            {kind: most for kind, most in kinds.items() if not found or kind not in found[0][3]},
            lanes=sorted(((lane[0], lane[1]) for lane in found), reverse=turned),
            cursors=self.cursors if behind else {},
        )  # fmt: skip

    @rule(
        tick=st.sampled_from((MOMENT, SECOND, LEASE - MOMENT, LEASE)),
        picks=picks,
        before=st.sampled_from(("nothing", "a cancel", "a settle")),
    )
    def renew(self, tick: timedelta, picks: list[int], before: str) -> None:
        held = self.leases_of([0, *picks])
        if before == "a cancel":
            self.cancel_jobs([job_id for job_id, _ in held], "ann")
        elif before == "a settle":
            self.settle_succeeded(held[:1])
        self.model.now += tick
        kept = self.model.renew_leases(held, LEASE)
        self.call("renew_leases", *pairs(held), LEASE, expected=kept)
        self.call("find_cancelled", *pairs(held), expected=ids(self.model.find_cancelled(held)))

    @rule(pick=numbers)
    def isolate(self, pick: int) -> None:
        [held] = self.leases_of([pick])
        self.isolate_job(held)

    @rule(tick=ticks, picks=picks, told=picks, dies=dying)
    def succeed(self, tick: timedelta, picks: list[int], told: list[int], *, dies: bool) -> None:
        """Some without a result, some with one."""
        self.model.now += tick
        self.settle_succeeded(self.leases_of(picks), dies=dies)
        results = {lease: {"n": n} for n, lease in enumerate(self.leases_of(told))}
        kept = self.model.settle_with_result(results)
        self.call("settle_with_result", *pairs(results), [*results.values()], expected=ids(kept))
        self.follow(kept, dict.fromkeys(kept, False), dies=dies)

    @rule(tick=ticks, picks=picks, first=backs, others=backs, dies=dying)
    def give_back(
        self, tick: timedelta, picks: list[int], first: Back, others: Back, *, dies: bool
    ) -> None:
        self.model.now += tick
        held = self.leases_of([0, *picks])
        self.settle_queued(
            {lease: others if n else first for n, lease in enumerate(held)}, dies=dies
        )

    @rule(tick=ticks, picks=picks, first=burials, others=burials, dies=dying)
    def bury(
        self, tick: timedelta, picks: list[int], first: Burial, others: Burial, *, dies: bool
    ) -> None:
        self.model.now += tick
        held = self.leases_of(picks)
        self.settle_dead({lease: others if n else first for n, lease in enumerate(held)}, dies=dies)

    # Workers come and go.

    @rule(tick=ticks, dies=dying)
    def reap(self, tick: timedelta, *, dies: bool) -> None:
        self.model.now += tick
        self.reap_jobs(dies=dies)

    @rule(tick=ticks)
    def beat(self, tick: timedelta) -> None:
        """What workers who died did not do, somebody does."""
        self.model.now += tick
        self.follow_up()
        self.end_open_families()

    @rule(worker=workers, picks=picks, unwanted=st.booleans())
    def hand_back_unheard(self, worker: str, picks: list[int], *, unwanted: bool) -> None:
        heard = self.leases_of([0, *picks])
        if unwanted:
            self.cancel_jobs([job.id for job in self.running()], "ann")
        back = self.model.hand_back_unheard(worker, heard)
        self.call("hand_back_unheard", worker, *pairs(heard), expected=ids(back))

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
