"""
Children of a job, and the final job that is made once when none of them holds it any more.

Nothing is counted: whether a child is open its own row says, and `walked_to` only saves looking
at children that have ended. An ended family never begins anew.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.draws import ERRORS, KINDS, NOTHING, SECOND, dying, numbers
from tests.model.model import ALERT_KEY_TTL, Queue
from tests.model.player import Player
from tests.model.rows import Held, Job, Parent
from tests.model.wishes import Back, Burial, Wish

FINAL_KEY_TTL = ALERT_KEY_TTL
MARK_STEP = 1_000
FINALS = (
    Wish(kind="mail", payload={"n": 1}),
    Wish(kind="job", payload={}, run_in=SECOND, queue="slow"),
)
CHILDREN = ("id", "kind", "payload", "key", "run_at", "queue", "priority", "parent_id")


class Families(Queue):
    """What the statements do."""

    def insert_parent(
        self, parent: int, children: int, on_failure: str, then: Wish
    ) -> list[tuple[int]]:
        """One family a job."""
        if parent in self.parents:
            return []
        self.parents[parent] = Parent(
            job_id=parent, children=children, on_failure=on_failure, fanned_out_at=self.now,
            then_kind=then.kind, then_payload=then.payload, then_run_in=then.run_in,
            then_queue=then.queue, then_priority=then.priority,
        )  # fmt: skip
        return [(parent,)]

    def reserve_jobs(self, jobs: int) -> list[tuple[int, datetime]]:
        return [(next(self.job_ids), self.now) for _ in range(jobs)]

    def copy_children(self, parent: int, made: Iterable[tuple[int, Wish]]) -> list[Job]:
        children = [
            Job(
                id=job_id, kind=wish.kind, payload=wish.payload, key=f"job:{job_id}",
                run_at=self.now + wish.run_in, created_at=self.now, queue=wish.queue,
                priority=wish.priority, parent_id=parent,
            )
            for job_id, wish in made
        ]  # fmt: skip
        self.jobs.update((job.id, job) for job in children)
        return children

    def find_families(self, after: int, limit: int) -> list[int]:
        """Those whose final job is not made."""
        return sorted(
            each.job_id
            for each in self.parents.values()
            if each.finished_at is None and each.job_id > after
        )[:limit]

    def end_families(self, parents: Iterable[int]) -> list[tuple[int, int]]:
        """The final job of each of them whose children have all ended; a mark where they have not."""
        answers = []
        for job_id in sorted(set(parents) & self.parents.keys()):
            parent = self.parents[job_id]
            if parent.finished_at is not None:
                continue
            open_ones = self._open_children(parent)
            held_by = min(
                [each for each in open_ones if each >= parent.walked_to] or open_ones, default=None
            )
            if held_by is not None:
                if held_by >= parent.walked_to + MARK_STEP:
                    parent.walked_to = held_by
                continue
            parent.finished_at = self.now
            counts = self._count(job_id)
            told = {
                "parent_id": job_id, "children": parent.children, "succeeded": counts["succeeded"],
                "dead": counts["dead"], "cancelled": counts["cancelled"],
            }  # fmt: skip
            final = Wish(
                kind=parent.then_kind, payload={**parent.then_payload, "family": told},
                key=f"family:{job_id}", run_in=parent.then_run_in, queue=parent.then_queue,
                priority=parent.then_priority,
            )  # fmt: skip
            answers.append((job_id, self.enqueue_job(final, FINAL_KEY_TTL)[0]))
        return answers

    def show_family(self, job_id: int) -> list[tuple[object, ...]]:
        """How far the children are, as a person sees it."""
        if (parent := self.parents.get(job_id)) is None:
            return []
        counts = self._count(job_id)
        key = self.job_keys.get((parent.then_kind, f"family:{job_id}"))
        return [
            (
                parent.children, parent.children - counts["queued"] - counts["running"],
                *counts.values(), parent.on_failure, parent.then_kind,
                None if key is None or parent.finished_at is None else key.job_id,
                parent.fanned_out_at, parent.finished_at,
            )
        ]  # fmt: skip

    def prune_parents(self, age: timedelta, most: int) -> int:
        """Forget families that ended long ago."""
        old = [
            each
            for each in self.parents.values()
            if each.finished_at is not None and each.finished_at < self.now - age
        ]
        for each in old[:most]:
            del self.parents[each.job_id]
        return len(old[:most])

    def _children(self, parent: int) -> list[Job]:
        """A dead one that was made anew is the new one."""
        return [
            job
            for job in self.jobs.values()
            if job.parent_id == parent and not (job.state == "dead" and self.made_of(job.id))
        ]

    def _open_children(self, parent: Parent) -> list[int]:
        holds = {"queued", "running"} | ({"dead"} if parent.on_failure == "hold" else set())
        return [job.id for job in self._children(parent.job_id) if job.state in holds]

    def _count(self, parent: int) -> dict[str, int]:
        counts = dict.fromkeys(("queued", "running", "succeeded", "dead", "cancelled"), 0)
        for job in self._children(parent):
            counts[job.state] += 1
        return counts


class FamilyMoves(Player):
    """Calls of them."""

    @rule(
        pick=numbers,
        n=st.integers(0, 3),
        gap=st.sampled_from((0, 0, 0, MARK_STEP)),
        on_failure=st.sampled_from(("hold", "continue")),
        then=st.sampled_from(FINALS),
        dies=dying,
    )
    def fan_out(
        self, pick: int, n: int, gap: int, on_failure: str, then: Wish, *, dies: bool
    ) -> None:
        """A job that runs makes children, and has succeeded."""
        self.make_children(self.live_lease(pick), n, gap, on_failure, then, dies=dies)

    def make_children(
        self, held: Held, n: int, gap: int, on_failure: str, then: Wish, *, dies: bool
    ) -> None:
        """Numbers may be lost between children, as those of a transaction that was rolled back."""
        parent, _ = held
        is_first = self.model.insert_parent(parent, n, on_failure, then)
        self.call(
            "insert_parent", parent, n, on_failure, then.kind, then.payload, then.run_in,
            then.queue, then.priority,
            expected=is_first,
        )  # fmt: skip
        if is_first and n:
            found = self.model.reserve_jobs(n + gap)
            self.call("reserve_jobs", n + gap, expected=found)
            taken = [job_id for job_id, _ in found]
            wishes = [Wish(kind="job", payload={"n": n}) for n in range(n)]
            children = self.model.copy_children(
                parent, zip([*taken[:1], *taken[1 + gap :]], wishes, strict=True)
            )
            records = [tuple(getattr(job, name) for name in CHILDREN) for job in children]
            self.database.copy("jobs", CHILDREN, records)
        elif is_first:
            self.end_families([parent])
        self.settle_succeeded([held], dies=dies)

    @rule(
        n=st.integers(1, 3),
        ends=st.lists(
            st.sampled_from(("dies", "succeeds", "retries", "dies")), min_size=3, max_size=3
        ),
        on_failure=st.sampled_from(("hold", "continue", "hold")),
        then=st.sampled_from(FINALS),
        again=st.booleans(),
        dies=dying,
    )
    def grow_up(
        self, n: int, ends: Sequence[str], on_failure: str, then: Wish, *, again: bool, dies: bool
    ) -> None:
        """Children come to their end one after the other; the dead ones are made anew, perhaps."""
        held = self.live_lease(0)
        parent = self.model.jobs[held[0]]
        self.make_children(held, n, 0, on_failure, then, dies=dies)
        self.claim_due(8, "w1", KINDS[0])
        for job, end in zip(self.running_children(parent), ends, strict=False):
            held = (job.id, job.fence)
            if end == "succeeds":
                self.settle_succeeded([held], dies=dies)
            elif end == "dies":
                self.settle_dead({held: Burial(reason="gave_up", error=ERRORS[0])}, dies=dies)
            else:
                self.settle_queued({held: Back(after=NOTHING, ended="failed")}, dies=dies)
        if again:
            dead = [
                job.id for job in self.jobs() if job.parent_id == parent.id and job.state == "dead"
            ]
            self.requeue_jobs(dead, even_ignored=True)
            self.model.now += SECOND
        self.claim_due(8, "w1", KINDS[0])
        held = [(job.id, job.fence) for job in self.running_children(parent)]
        self.settle_succeeded(held, dies=dies)
        self.end_open_families()
        self.end_families([parent.id])  # whoever comes second has nothing to end

    def running_children(self, parent: Job) -> list[Job]:
        return [job for job in self.running() if job.parent_id == parent.id]
