"""
What the invariants are worth: good histories that are damaged at one place must be objected to.

The good ones come from a small model of a correct run: senders, workers that claim, renew, reap,
take slots and stop, an upstream, operators; one worker is killed, one frozen for longer than a
lease, one told to stop. All invariants must be silent about them. Then one entry is dropped,
doubled, swapped with its neighbour, given to another process, moved in time or changed in one
number, and at least one invariant must object. What may be damaged without harm is listed below,
each with its reason.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, islice
from typing import Any

import pytest

from reliq.scenario import invariants
from reliq.scenario.history import SECOND, Entry, History, ScheduleTerms, Terms, in_order

TERMS = Terms(
    lease_s=1.0, poll_s=0.05, reap_every_s=0.1, retry_base_s=0.2, retry_cap_s=5.0,
    retry_jitter=0.2, attempts_max=3, slack_s=0.02, schedule_every_s=0.5, grace_s=0.4,
    concurrency=2, schedules=(ScheduleTerms(name="beat", every_s=1.0, missed="latest"),),
)  # fmt: skip
EPOCH = 1_790_000_000_000_000
"""When the model begins, by the database's clock, in microseconds."""

LEASE, POLL, REAP, LOOK, GRACE = 1_000_000, 50_000, 100_000, 500_000, 400_000
END = 14_000_000
MIXED = (
    ("drill.call", ("ok",)), ("drill.call", ("502", "ok")), ("drill.call", ("429", "ok")),
    ("drill.call", ("404",)), ("drill.call", ("502", "502", "502")), ("drill.sleep", ("ok",)),
    ("drill.sleep", ("ok",)), ("drill.sleep", ("ok",)), ("drill.fail", ("told",)),
    ("drill.fail", ("raised", "raised", "raised")), ("drill.write", ("ok",)),
    ("drill.stubborn", ("ok",)), ("drill.stubborn", ("502", "ok")), ("drill.call", ("again", "ok")),
)  # fmt: skip
"""What a job does at each attempt."""

CALLING = {"drill.call", "drill.sleep", "drill.stubborn"}
WRITING = {"drill.write", "drill.stubborn"}
ANSWERS = {"ok": 200, "again": 200, "502": 502, "429": 429, "404": 404}


@dataclass(slots=True)
class Job:
    """A row of the model, and what the job will do."""

    id: int
    kind: str
    key: str
    run_at: int
    plan: Sequence[str]
    state: str = "queued"
    fence: int = 0
    attempt: int = 0
    lease_until: int = 0
    renewed_at: int = 0
    holder: str = ""
    tries: int = 0


@dataclass(slots=True)
class Worker:
    """A process of the model."""

    p: str
    name: str
    running: dict[tuple[int, int], Job] = field(default_factory=dict)
    frozen_until: int = 0
    is_dead: bool = False
    is_stopping: bool = False


class Run:
    """One correct run: everything that happens, in the order of a clock."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 0
        self.seen: list[Entry] = []
        self.jobs: dict[int, Job] = {}
        self.workers: list[Worker] = []
        self.taken: set[int] = set()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._n = count()
        self._xid, self._id, self._call, self._event = count(700), count(1), count(1), count(1)

    def later(self, delay: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + round(delay), next(self._n), act))

    def say(self, src: str, p: str, e: str, **fields: Any) -> None:
        self.seen.append(Entry(0, self.now * 1_000, src, p, e, fields))

    def write(self, p: str, e: str, xid: int, stmt: str, **fields: Any) -> None:
        self.say("wal", p, e, xid=xid, stmt=stmt, db=EPOCH + self.now, **fields)

    def history(self) -> History:
        self.say("process", "receiver-1", "started", pid=1, command="serve")
        for n in (1, 2, 3):
            self.start(f"worker-{n}")
        self.senders()
        victims = self.dice.sample([1, 2, 3], 3)
        kill, freeze, stop = (f"worker-{n}" for n in victims)
        self.later(self.dice.uniform(0.9e6, 1.4e6), lambda: self.kill(kill))
        self.later(self.dice.uniform(0.9e6, 1.4e6), lambda: self.freeze(freeze))
        self.later(self.dice.uniform(3.2e6, 3.6e6), lambda: self.stop(stop))
        for second in (0.5, 3.0, 6.0):
            self.later(second * 1e6, lambda: self.say("canary", "", "late", by_s=0.004))
        self.later(9e6, self.requeue)
        self.later(END - 1, self.listing)
        while self._due and self._due[0][0] < END:
            self.now, _, act = heapq.heappop(self._due)
            act()
        return History(entries=in_order(self.seen), terms=TERMS)

    # Senders and operators.

    def senders(self) -> None:
        plans = self.dice.sample(MIXED, len(MIXED))
        for n in range(12):
            at = self.dice.uniform(0.1e6, 5e6)
            mine = [plans.pop() for _ in range(min(len(plans), self.dice.randint(1, 2)))]
            self.later(at, lambda key=f"evt-{n}", mine=mine: self.deliver(key, mine))

    def deliver(self, key: str, plans: Sequence[Any]) -> None:
        how = self.dice.choice(["once", "twice", "lost", "refused"])
        event, began = next(self._event), self.now * 1_000
        if how == "refused":
            self.say("driver", "", "delivery", key=key, copy=0, **{"try": 0}, outcome="refused",
                     status=503, retry_after="3", began=began)  # fmt: skip
            self.later(200_000, lambda: self.accept(key, event, plans, 1))
        else:
            self.accept(key, event, plans, 0, is_heard=how != "lost")
        if how in {"twice", "lost"}:
            self.later(300_000, lambda: self.answer(key, event, 0, 1, duplicate=True))

    def accept(
        self, key: str, event: int, plans: Sequence[Any], nth: int, *, is_heard: bool = True
    ) -> None:
        xid = next(self._xid)
        self.write("receiver-1", "event", xid, "store_event", event=event, source="drill", key=key)
        for n, (kind, plan) in enumerate(plans):
            self.make("receiver-1", xid, "store_event", kind, f"{key}:{n}", plan, event=event)
        outcome = "accepted" if is_heard else "unknown"
        self.later(2_000, lambda: self.answer(key, event, len(plans), nth, outcome=outcome))

    def answer(
        self,
        key: str,
        event: int,
        jobs: int,
        nth: int,
        *,
        duplicate: bool = False,
        outcome: str = "accepted",
    ) -> None:
        heard = {"status": 200, "event": event, "jobs": jobs, "duplicate": duplicate}
        self.say("driver", "", "delivery", key=key, copy=0, **{"try": nth}, outcome=outcome,
                 began=self.now * 1_000, **(heard if outcome == "accepted" else {}))  # fmt: skip

    def make(
        self,
        p: str,
        xid: int,
        stmt: str,
        kind: str,
        key: str,
        plan: Sequence[str],
        event: int | None = None,
        letter: int | None = None,
    ) -> Job:
        job = Job(next(self._id), kind, key, EPOCH + self.now, plan)
        self.jobs[job.id] = job
        self.later(1_500, self.ring)
        self.write(p, "job", xid, stmt, job=job.id, kind=kind, key=key, event=event,
                   run_at=job.run_at, queue="default", priority=5, requeued_from=letter)  # fmt: skip
        return job

    def ring(self) -> None:
        """Notify: whoever can claims at once."""
        for worker in self.workers:
            if not worker.is_dead and worker.frozen_until <= self.now:
                self.claim(worker)

    def requeue(self) -> None:
        for letter in [job for job in self.jobs.values() if job.state == "dead"]:
            new = self.make(
                "",
                next(self._xid),
                "requeue_job",
                letter.kind,
                letter.key,
                ("ok",),
                letter=letter.id,
            )
            for _ in range(2):
                self.say(
                    "driver",
                    "",
                    "requeued",
                    job=letter.id,
                    code=0,
                    new=new.id,
                    began=self.now * 1_000,
                )

    def listing(self) -> None:
        for dead in [x for x in self.seen if (x.src, x.e) == ("wal", "dead")]:
            self.say(
                "driver", "", "dead-listed", job=dead.a["job"], reason=dead.a["reason"], error="e"
            )

    # Faults.

    def worker(self, p: str) -> Worker:
        return next(w for w in self.workers if w.p == p)

    def fire(self, step: str, p: str, sig: str) -> Worker:
        worker = self.worker(p)
        self.say(
            "fault",
            "",
            "fired",
            step=step,
            do="signal",
            to=p,
            sig=sig,
            hits=1,
            victim_live_leases=len(worker.running),
        )
        return worker

    def kill(self, p: str) -> None:
        self.fire("kill", p, "KILL").is_dead = True
        self.later(1_000, lambda: self.say("process", p, "exited", code=-9))
        self.later(300_000, lambda: self.start(f"{p}#2"))

    def freeze(self, p: str) -> None:
        lasts = round(self.dice.uniform(1.3e6, 1.7e6))
        self.fire("freeze", p, "STOP").frozen_until = self.now + lasts
        self.later(lasts, lambda: self.say("fault", "", "healed", step="freeze", do="signal", to=p))

    def stop(self, p: str) -> None:
        worker = self.fire("stop", p, "TERM")
        worker.is_stopping = True
        self.later(
            1_000, lambda: self.say("process", p, "worker.draining", running=len(worker.running))
        )
        self.later(GRACE, lambda: self.hand_back(worker))

    def hand_back(self, worker: Worker) -> None:
        for (job_id, fence), job in list(worker.running.items()):
            self.say(
                "process", worker.p, "drill.ended", job=job_id, attempt=job.attempt, how="cancelled"
            )
            self.settle(worker, job, fence, "release")
        self.later(5_000, lambda: self.say("process", worker.p, "exited", code=0))
        worker.is_dead = True

    # Workers.

    def start(self, p: str) -> None:
        worker = Worker(p, f"name-of-{p}")
        self.workers.append(worker)
        self.say("process", p, "started", pid=len(self.workers) + 1, command="worker")
        self.later(20_000, lambda: self.say("process", p, "ready", pid=1))
        for act, beat in (
            (self.claim, POLL * 0.9),
            (self.reap, REAP),
            (self.look, LOOK),
            (self.renew, LEASE / 6),
        ):
            self.later(
                30_000 + self.dice.uniform(0, beat),
                lambda act=act, beat=beat: self.beat(worker, act, beat),
            )

    def beat(self, worker: Worker, act: Callable[[Worker], None], beat: float) -> None:
        if worker.is_dead:
            return
        if worker.frozen_until > self.now:
            self.later(
                worker.frozen_until - self.now + self.dice.uniform(500, 5_000),
                lambda: self.beat(worker, act, beat),
            )
            return
        act(worker)
        self.later(beat * self.dice.uniform(0.9, 1.1), lambda: self.beat(worker, act, beat))

    def claim(self, worker: Worker) -> None:
        free = TERMS.concurrency - len(worker.running)
        due = [
            job
            for job in self.jobs.values()
            if job.state == "queued" and job.run_at <= EPOCH + self.now
        ]
        if worker.is_stopping or not free or not due:
            return
        xid = next(self._xid)
        for job in sorted(due, key=lambda job: (job.run_at, job.id))[:free]:
            job.state, job.fence, job.attempt, job.holder = (
                "running",
                job.fence + 1,
                job.attempt + 1,
                worker.p,
            )
            job.lease_until, job.renewed_at = EPOCH + self.now + LEASE, self.now
            worker.running[job.id, job.fence] = job
            self.write(worker.p, "claim", xid, "claim_jobs", job=job.id, kind=job.kind, attempt=job.attempt,
                       attempts_max=3, fence=job.fence, worker=worker.name, run_at=job.run_at,
                       lease_until=job.lease_until)  # fmt: skip
            self.later(1_000, lambda job=job, fence=job.fence: self.begin(worker, job, fence))
        self.write(
            worker.p,
            "statement",
            xid,
            "claim_jobs",
            table="jobs",
            op="update",
            rows=min(free, len(due)),
        )

    def begin(self, worker: Worker, job: Job, fence: int) -> None:
        if worker.is_dead or worker.frozen_until > self.now:
            if not worker.is_dead:
                self.later(
                    worker.frozen_until - self.now + 1_000, lambda: self.begin(worker, job, fence)
                )
            return
        attempt, outcome = job.attempt, job.plan[min(job.tries, len(job.plan) - 1)]
        if job.fence != fence:
            self.lose(worker, job, fence)
            return
        self.say("process", worker.p, "drill.started", job=job.id, attempt=attempt)
        takes = (
            self.dice.uniform(1.2e6, 1.6e6)
            if job.kind in {"drill.sleep", "drill.stubborn"}
            else self.dice.uniform(5e3, 8e4)
        )
        call = next(self._call) if job.kind in CALLING else None
        if call is not None:
            self.say(
                "upstream",
                worker.p,
                "request",
                call=call,
                job=job.id,
                attempt=attempt,
                key=job.key,
                body=f"b{job.id}",
            )
        self.later(takes, lambda: self.respond(worker, job, fence, attempt, outcome, call))

    def respond(
        self, worker: Worker, job: Job, fence: int, attempt: int, outcome: str, call: int | None
    ) -> None:
        if call is not None:
            asked = {"retry_after_s": 0.6} if outcome == "429" else {}
            how = "unheard" if worker.is_dead else "whole"
            self.say(
                "upstream",
                "",
                "response",
                call=call,
                job=job.id,
                status=ANSWERS[outcome],
                rule=0,
                how=how,
                **asked,
            )
        self.later(2_000, lambda: self.end(worker, job, fence, attempt, outcome))

    def end(self, worker: Worker, job: Job, fence: int, attempt: int, outcome: str) -> None:
        if worker.is_dead:
            return
        if worker.frozen_until > self.now:
            self.later(
                worker.frozen_until - self.now + 700,
                lambda: self.end(worker, job, fence, attempt, outcome),
            )
            return
        how = {"ok": "done", "again": "done"}.get(outcome, "raised")
        self.say("process", worker.p, "drill.ended", job=job.id, attempt=attempt, how=how)
        if job.fence != fence or job.state != "running":
            self.write(
                worker.p,
                "statement",
                next(self._xid),
                "settle_succeeded",
                table="jobs",
                op="update",
                rows=0,
            )
            self.lose(worker, job, fence)
        else:
            job.tries += 1
            self.settle(
                worker,
                job,
                fence,
                {"ok": "succeeded", "again": "again"}.get(outcome, "failed"),
                outcome,
            )

    def lose(self, worker: Worker, job: Job, fence: int) -> None:
        worker.running.pop((job.id, fence), None)
        self.say("process", worker.p, "lease.lost", job=job.id, fence=fence, why="renewal refused")

    def settle(self, worker: Worker, job: Job, fence: int, e: str, outcome: str = "") -> None:
        worker.running.pop((job.id, fence))
        xid, stmt = next(self._xid), f"settle_{e}"
        said = {
            "job": job.id,
            "kind": job.kind,
            "attempt": job.attempt,
            "fence": fence,
            "lease_until": job.lease_until,
        }
        if e == "succeeded":
            job.state = "succeeded"
            if job.kind in WRITING:
                self.write(
                    worker.p, "effect", xid, "", job=job.id, key=job.key, attempt=job.attempt
                )
            self.write(worker.p, e, xid, stmt, **said)
            word = e
        else:
            word = self.back(worker, job, e, outcome, said, xid, stmt)
        self.later(1_000, lambda: self.say("process", worker.p, "attempt.ended", job=said["job"], kind=job.kind,
                                           attempt=said["attempt"], fence=fence, settled=word))  # fmt: skip

    def back(
        self, worker: Worker, job: Job, e: str, outcome: str, said: dict, xid: int, stmt: str
    ) -> str:
        status = ANSWERS.get(outcome) if e == "failed" else None
        error = (
            "told to fail for ever" if outcome == "told" else "broken" if e == "failed" else None
        )
        reason = (
            "permanent" if outcome in {"404", "told"} else "attempts" if job.attempt >= 3 else None
        )
        low, high = TERMS.pause(job.attempt)
        pause = self.dice.uniform(low, high) if e == "failed" else 0.1 if e == "again" else 0
        if outcome == "429":
            pause = max(pause, 0.6 * self.dice.uniform(1, 1.2))
        is_dead = e == "failed" and reason is not None
        job.state, job.run_at = (
            "dead" if is_dead else "queued",
            EPOCH + self.now + round(pause * 1e6),
        )
        job.attempt -= e in {"again", "release"}
        ended = {"release": "handed_back"}.get(e, e)
        self.write(worker.p, e, xid, stmt, **said, ended=ended, error=error, status=status,
                   run_at=None if is_dead else job.run_at)  # fmt: skip
        if is_dead:
            self.write(worker.p, "dead", xid, stmt, job=job.id, kind=job.kind, attempt=said["attempt"],
                       fence=said["fence"], reason=reason, error=error)  # fmt: skip
        return "dead" if is_dead else ended

    def reap(self, worker: Worker) -> None:
        lost = [
            job
            for job in self.jobs.values()
            if job.state == "running" and job.lease_until <= EPOCH + self.now
        ]
        xid = next(self._xid)
        for job in lost:
            is_dead = job.attempt >= 3
            said = {"job": job.id, "kind": job.kind, "attempt": job.attempt, "fence": job.fence}
            job.state, job.run_at = "dead" if is_dead else "queued", EPOCH + self.now
            self.write(worker.p, "lease-lost", xid, "reap_jobs", **said, ended="lease_lost", error="silent", status=None,
                       lease_until=job.lease_until, run_at=None if is_dead else job.run_at,
                       worker=f"name-of-{job.holder}")  # fmt: skip
            if is_dead:
                self.write(
                    worker.p, "dead", xid, "reap_jobs", **said, reason="attempts", error="silent"
                )
        if lost or self.dice.random() < 0.02:
            self.write(
                worker.p, "statement", xid, "reap_jobs", table="jobs", op="update", rows=len(lost)
            )

    def look(self, worker: Worker) -> None:
        at = (EPOCH + self.now) // 1_000_000 * 1_000_000
        if at in self.taken or self.now > 5e6 or worker.is_stopping:
            return
        self.taken.add(at)
        xid = next(self._xid)
        job = self.make(worker.p, xid, "enqueue_job", "drill.write", f"beat@{at}", ("ok",))
        self.write(worker.p, "slot", xid, "enqueue_job", job=job.id, schedule="beat", at=at)

    def renew(self, worker: Worker) -> None:
        old = [
            job for (_, fence), job in worker.running.items()
            if job.state == "running" and job.fence == fence and self.now - job.renewed_at >= LEASE / 3
        ]  # fmt: skip
        xid = next(self._xid)
        for job in old:
            was, job.lease_until, job.renewed_at = (
                job.lease_until,
                EPOCH + self.now + LEASE,
                self.now,
            )
            self.write(
                worker.p,
                "renew",
                xid,
                "renew_leases",
                job=job.id,
                fence=job.fence,
                lease_until=job.lease_until,
                was=was,
            )


@cache
def good(seed: int) -> History:
    return Run(seed).history()


def objections(history: History) -> list[str]:
    """Name the first invariant that objects; the witnesses' own first, for it knows most."""
    every = sorted(invariants.load().values(), key=lambda one: (not one.doubts, one.name))
    for one in every:
        for result in one.check(history):
            if result is not None:
                return [f"{one.name}: {result.text}"]
    return []


@pytest.mark.parametrize("seed", range(20))
def test_all_invariants_are_silent_about_a_good_history(seed):
    found = {
        name: [result.text for result in one.check(good(seed)) if result]
        for name, one in invariants.load().items()
    }

    assert {name: texts for name, texts in found.items() if texts} == {}


NUMBERS = {
    "job", "event", "fence", "attempt", "attempts_max", "call", "new", "requeued_from", "jobs",
    "run_at", "lease_until", "was", "at", "db", "code", "status", "xid",
}  # fmt: skip
MOMENTS = {"run_at", "lease_until", "was", "at", "db"}


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done to which entry; `other` is what it became, or what it changed places with."""

    op: str
    one: Entry
    other: Entry | None
    entries: Sequence[Entry]

    def changed(self, name: str) -> bool:
        return self.op == "renumbered" and self.other.a.get(name) != self.one.a.get(name)

    def is_later(self) -> bool:
        return self.op == "moved" and self.other.t > self.one.t


def dropped(entries: list[Entry], n: int, dice: random.Random) -> Damage:
    return Damage("dropped", entries[n], None, entries[:n] + entries[n + 1 :])


def doubled(entries: list[Entry], n: int, dice: random.Random) -> Damage:
    return Damage("doubled", entries[n], None, [*entries[: n + 1], *entries[n:]])


def swapped(entries: list[Entry], n: int, dice: random.Random) -> Damage:
    """Let an entry and the next one of its source change places."""
    one = entries[n]
    m = next((m for m in range(n + 1, len(entries)) if entries[m].src == one.src), n)
    changed = list(entries)
    changed[n], changed[m] = replace(entries[m], t=one.t), replace(one, t=entries[m].t)
    return Damage("swapped", one, entries[m], changed)


def handed_over(entries: list[Entry], n: int, dice: random.Random) -> Damage:
    """Say that another process of its sort did it."""
    one, sort = entries[n], entries[n].p.split("-")[0]
    others = sorted({x.p for x in entries if x.p != one.p and x.p and x.p.startswith(sort)})
    other = replace(one, p=dice.choice(others) if one.p and others else one.p)
    return Damage("handed_over", one, other, [*entries[:n], other, *entries[n + 1 :]])


def moved(entries: list[Entry], n: int, dice: random.Random) -> Damage:
    """Move an entry in time, by much more than the slack."""
    by = round(dice.choice([-1, 1]) * dice.uniform(0.5, 2.5) * SECOND)
    other = replace(entries[n], t=entries[n].t + by)
    return Damage("moved", entries[n], other, [*entries[:n], other, *entries[n + 1 :]])


def renumbered(entries: list[Entry], n: int, dice: random.Random) -> Damage:
    """Raise or lower a number: an id by one, a moment by up to some seconds."""
    one = other = entries[n]
    names = [x for x, v in one.a.items() if x in NUMBERS and type(v) is int]
    if names:
        name = dice.choice(names)
        by = round(dice.uniform(0.5, 2.5) * 1_000_000) if name in MOMENTS else 1
        other = replace(one, a={**one.a, name: one.a[name] + dice.choice([-by, by])})
    return Damage("renumbered", one, other, [*entries[:n], other, *entries[n + 1 :]])


DAMAGES = (dropped, doubled, swapped, handed_over, moved, renumbered)


def about(x: Entry) -> tuple:
    """Name what an entry is about: an attempt, a call, a key."""
    return tuple((name, x.a[name]) for name in ("job", "call", "key") if x.a.get(name)) or (x.p,)


def said(damage: Damage, src: str, e: str, *ops: str) -> bool:
    return (damage.one.src, damage.one.e) == (src, e) and (not ops or damage.op in ops)


def is_rest_of(damage: Damage, history: History, src: str, *names: str) -> bool:
    """Say whether others of these entries are of the same transaction, attempt or key."""
    one = damage.one
    field = {"wal": "xid", "driver": "key"}.get(src)
    return any(
        x is not one and (x.a.get(field) == one.a.get(field) if field else _run(x) == _run(one))
        for x in history.of(src, *names)
    )


def _run(x: Entry) -> tuple:
    return x.p, x.a.get("job"), x.a.get("attempt")


def is_in_order(damage: Damage, history: History) -> bool:
    """Say whether an entry that was moved passed by nothing that is about the same attempt."""
    one, first, last = damage.one, *sorted((damage.one.t, damage.other.t))
    calls = {x.a["call"]: x.a["attempt"] for x in history.of("upstream", "request")}
    attempt = one.a.get("attempt", calls.get(one.a.get("call")))
    return attempt is not None and not any(
        x.a.get("attempt", calls.get(x.a.get("call"))) == attempt
        for x in history.entries
        if x.a.get("job") == one.a["job"] and first <= x.t <= last
        if abs(one.seconds_to(x)) > TERMS.slack_s
    )


def is_unheard(damage: Damage, history: History) -> bool:
    """Say whether no row tells what this answer was."""
    one = damage.one
    if (one.src, one.e) != ("upstream", "response"):
        return False
    requests = {x.a["call"]: x for x in history.of("upstream", "request")}
    answers = Counter(_run(requests[x.a["call"]]) for x in history.of("upstream", "response"))
    run = _run(requests[one.a["call"]])
    return (
        one.a["how"] != "whole"
        or answers[run] > 1
        or not any(
            _run(x) == run and (x.e == "succeeded" or x.a["status"] is not None)
            for x in history.of("wal", "succeeded", "failed")
        )
    )


# Each class with the reason why no verdict can, or need, depend on it.
HARMLESS: Sequence[tuple[str, Callable[[Damage, History], bool]]] = (
    (
        "the canary tells of the machine, and the slack made of it stands in the terms",
        lambda d, h: d.one.src == "canary",
    ),
    (
        "a statement is no change: it shows that a worker was able, which only makes bounds stricter",
        lambda d, h: said(d, "wal", "statement"),
    ),
    (
        "when and how often a fault was done decides who is judged, not what is right",
        lambda d, h: d.one.src == "fault" and d.op in {"doubled", "moved", "swapped"},
    ),
    (
        "a fault that is not known to have been over excuses more than it should",
        lambda d, h: said(d, "fault", "healed", "dropped"),
    ),
    (
        "what is moved, and still in order with all that is about its attempt, is in order",
        lambda d, h: d.op == "moved" and d.one.src in {"process", "upstream"} and is_in_order(d, h),
    ),
    (
        "a duplicate is answered with no jobs, which nobody promised",
        lambda d, h: said(d, "driver", "delivery", "renumbered") and d.changed("jobs") and d.one.a["duplicate"],
    ),
    (
        "a list has no order, and may be read twice or later",
        lambda d, h: said(d, "driver", "dead-listed", "doubled", "moved", "swapped"),
    ),
    (
        "one operator more, one fewer, or one who heard later",
        lambda d, h: said(d, "driver", "requeued", "doubled", "dropped") or (said(d, "driver", "requeued") and d.is_later()),
    ),
    (
        "what people did has no order among itself",
        lambda d, h: d.one.src == "driver" and d.op == "swapped",
    ),
    (
        "another delivery of the key was seen, or this one was answered later, or by 201 for 200",
        lambda d, h: (said(d, "driver", "delivery", "dropped") and is_rest_of(d, h, "driver", "delivery"))
        or (said(d, "driver", "delivery") and (d.is_later() or (d.op == "renumbered" and d.changed("status")))),
    ),
    (
        "lines may be lost with their process, and come late; the rows tell how it ended",
        lambda d, h: d.one.src == "process"
        and d.one.e in {"attempt.ended", "drill.ended", "lease.lost", "ready", "worker.draining", "exited"}
        and (d.op == "dropped" or d.is_later()),
    ),
    (
        "to have been started, or to be draining, earlier changes nothing that was seen",
        lambda d, h: d.one.src == "process" and d.one.e in {"started", "ready", "worker.draining"} and d.op == "moved",
    ),
    (
        "a handler that never ended leaves nothing that rests on its beginning",
        lambda d, h: said(d, "process", "drill.started", "dropped", "moved") and not is_rest_of(d, h, "process", "drill.ended"),
    ),
    (
        "an answer that no row tells of was heard by nobody, or it was not the attempt's only one",
        lambda d, h: is_unheard(d, h) and d.op in {"dropped", "moved", "renumbered", "swapped"},
    ),
    (
        "another number of the same sort: 201 for 200",
        lambda d, h: said(d, "upstream", "response", "renumbered") and d.changed("status") and d.one.a["status"] == 200,
    ),
    (
        "a bound of attempts that the job did not reach",
        lambda d, h: said(d, "wal", "claim", "renumbered") and d.changed("attempts_max"),
    ),
    (
        "the number of a transaction is a name; only what belongs together must share it",
        lambda d, h: d.one.src == "wal" and d.op == "renumbered" and d.changed("xid")
        and (d.one.e in {"claim", "renew", "lease-lost"} or not is_rest_of(d, h, "wal", "event", "job", "slot", "effect", "succeeded", "failed", "dead")),
    ),
    (
        "a statement may have begun long before its commit: it waited for a lock",
        lambda d, h: d.one.src == "wal" and d.op == "renumbered" and d.changed("db") and d.other.a["db"] < d.one.a["db"]
        and d.one.e in {"effect", "job", "event", "succeeded", "again"},
    ),
    (
        "commits of different jobs, and rows of one transaction, have no order that means anything",
        lambda d, h: d.op == "swapped" and d.one.src == "wal"
        and (d.one.a["xid"] == d.other.a["xid"] or d.one.a.get("job") != d.other.a.get("job")),
    ),
    (
        "what is about different things, or seen within the slack, has no order",
        lambda d, h: d.op == "swapped" and d.one.src in {"process", "upstream"}
        and (about(d.one) != about(d.other) or abs(d.one.seconds_to(d.other)) <= TERMS.slack_s),
    ),
)  # fmt: skip


def damages(op: Callable[..., Damage], seed: int) -> Iterator[tuple[Damage, History]]:
    """Yield damages of one sort that change something, without end."""
    dice = random.Random(seed)
    while True:
        history = good(dice.randrange(12))
        damage = op(list(history.entries), dice.randrange(len(history.entries)), dice)
        if damage.other != damage.one and not any(is_so(damage, history) for _, is_so in HARMLESS):
            yield damage, History(entries=in_order(damage.entries), terms=TERMS)


@pytest.mark.parametrize("op", DAMAGES, ids=lambda op: op.__name__)
def test_a_damaged_history_is_objected_to(op):
    drawn = list(islice(damages(op, seed=7), 400))

    missed = [damage for damage, history in drawn if not objections(history)]

    assert len(missed) <= len(drawn) / 100, [(x.one, x.other) for x in missed]


def test_every_harmless_class_is_needed_and_some_damage_falls_into_it():
    found = Counter()
    dice = random.Random(8)
    for _ in range(4_000):
        history = good(dice.randrange(12))
        damage = dice.choice(DAMAGES)(
            list(history.entries), dice.randrange(len(history.entries)), dice
        )
        found.update(reason for reason, is_so in HARMLESS if is_so(damage, history))

    assert set(found) == {reason for reason, _ in HARMLESS}
