"""
Jobs of one group start in order, at most `running` of them at a time.

All but the heads are blocked, whatever the heads do: run, wait for a retry, or lie in the queue.
The next one starts when somebody asks after a head has ended; the beat asks for whoever died.
"""

from collections.abc import Iterable

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.draws import ERRORS, KINDS, SECOND, dying
from tests.model.player import Player
from tests.model.rows import Group, Job, Rows
from tests.model.wishes import Back, Burial, Wish


class Groups(Rows):
    """What the statements do."""

    def advance_groups(self, keys: Iterable[str], places: int | None = None) -> int:
        """Fill the places of heads that have ended, by those who wait the longest."""
        advanced = 0
        for key in sorted(set(keys)):
            group = self.job_groups.setdefault(key, Group(key))
            group.running = places or group.running
            live = self._live_heads(group)
            waiting = [job for job in self.jobs.values() if job.blocked and job.group_key == key]
            waiting.sort(key=lambda job: job.id)
            for job in (first := waiting[: max(0, group.running - len(live))]):
                job.blocked, job.run_at = False, max(job.run_at, self.now)
            if first:
                group.heads = sorted([*live, *(job.id for job in first)])
            advanced += len(first)
        return advanced

    def lock_group(self, key: str) -> None:
        """Have a row of it, and leave it as it is."""
        self.job_groups.setdefault(key, Group(key))

    def advance_stalled_groups(self) -> int:
        """Do so wherever somebody waits for a place that is free."""
        waiting = {job.group_key for job in self.jobs.values() if job.blocked and job.group_key}
        return self.advance_groups(waiting)

    def prune_groups(self, most: int) -> int:
        """Forget groups whose heads are pruned and behind whom nobody waits."""
        waiting = {job.group_key for job in self.jobs.values() if job.blocked}
        idle = [
            group.key
            for group in self.job_groups.values()
            if group.key not in waiting and not any(head in self.jobs for head in group.heads)
        ]
        for key in sorted(idle)[:most]:
            del self.job_groups[key]
        return len(idle[:most])

    def _live_heads(self, group: Group) -> list[int]:
        return [head for head in group.heads if head in self.jobs and self.jobs[head].is_open]


WAYS = ("fails", "succeeds", "dies of it", "is cancelled", "dies of it", "falls silent")


class GroupMoves(Player):
    """Calls of them."""

    @rule(
        running=st.integers(1, 2),
        jobs=st.integers(2, 4),
        rounds=st.integers(1, 3),
        how=st.sampled_from(WAYS),
        dies=dying,
    )
    def stand_in_line(self, running: int, jobs: int, rounds: int, how: str, *, dies: bool) -> None:
        """A group comes, and whoever of it is in front goes on, or does not, over and over."""
        for _ in range(jobs):
            self.enqueue_job(Wish(kind="job", payload={}, group="g", running=running))
        for _ in range(rounds):
            if how == "is cancelled":
                self.cancel_jobs([job.id for job in self.line() if job.ready], "ann")
            self.claim_due(8, "w1", KINDS[0])
            self.end([job for job in self.line() if job.is_running], how, dies=dies)
            self.model.now += SECOND
        if dies:
            self.follow_up()

    def line(self) -> list[Job]:
        return [job for job in self.jobs() if job.group_key == "g"]

    def end(self, jobs: list[Job], how: str, *, dies: bool) -> None:
        held = [(job.id, job.fence) for job in jobs]
        if how == "fails":
            back = Back(after=SECOND * 2, ended="failed", error=ERRORS[0])
            self.settle_queued(dict.fromkeys(held, back), dies=dies)
        elif how == "dies of it":
            burial = Burial(reason="attempts", error=ERRORS[0])
            self.settle_dead(dict.fromkeys(held, burial), dies=dies)
            for job in jobs[:1]:
                self.requeue_job(job.id, even_ignored=False)
        elif how == "falls silent":
            self.model.now = max([self.model.now, *(job.lease_until for job in jobs)])
            self.reap_jobs(dies=dies)
        else:
            self.settle_succeeded(held, dies=dies)
