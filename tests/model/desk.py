"""
What a person does: cancel, make dead letters anew, leave them, forget what is old.

A dead letter never changes again. What was decided about it stands beside its last attempt.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.draws import (
    ALERT_WINDOW,
    ERRORS,
    KEY_TTL,
    LEASE,
    MOST,
    NOTHING,
    SECOND,
    numbers,
    picks,
    ticks,
)
from tests.model.model import Queue
from tests.model.player import Player, ids
from tests.model.rows import Attempt, Job

FOR_EVER = ALERT_WINDOW * 1_000


@dataclass(frozen=True, slots=True)
class Keep:
    """How long jobs of a kind are kept; under no name, of every other kind."""

    kind: str
    succeeded: timedelta
    cancelled: timedelta
    dead: timedelta
    ignored: timedelta


keeps = st.sampled_from(
    [
        [Keep("", SECOND, NOTHING, FOR_EVER, FOR_EVER)],
        [Keep("", LEASE, NOTHING, FOR_EVER, ALERT_WINDOW)],
        [Keep("", NOTHING, LEASE, KEY_TTL, LEASE)],
        [Keep("", FOR_EVER, NOTHING, LEASE, FOR_EVER)],
        [
            Keep("", FOR_EVER, FOR_EVER, FOR_EVER, SECOND),
            Keep("mail", SECOND, SECOND, LEASE, LEASE),
        ],
    ]
)


class Desk(Queue):
    """What the statements do."""

    def cancel_jobs(self, ids: Iterable[int], by: str, reason: str) -> list[tuple[int, str | None]]:
        """What waits is cancelled; what runs is marked, once; what has ended stays as it is."""
        asked = sorted(set(ids))
        for job in [self.jobs[each] for each in asked if each in self.jobs]:
            groups = [] if job.group_key is None else [job.group_key]
            self.advance_groups(groups)
            if job.is_open and not job.is_unwanted:
                job.cancel_requested_at = self.now
                job.cancel_requested_by, job.cancel_reason = by, reason
            if job.state == "queued":
                job.state, job.blocked, job.finished_at = "cancelled", False, self.now
                self.advance_groups(groups)
        return [(each, self.jobs[each].state if each in self.jobs else None) for each in asked]

    def requeue_job(
        self, job_id: int, by: str, reason: str, *, even_ignored: bool
    ) -> list[tuple[str, int | None, bool | None, str | None, str | None]]:
        """One new job per dead letter, in its group the last; the dead letter stays as it is."""
        if (dead := self.jobs.get(job_id)) is None:
            return []
        ignored = None if even_ignored else self._ignored(job_id)
        if dead.state != "dead" or ignored is not None:
            return [(dead.state, None, None, ignored, dead.group_key)]
        made, fresh = self._make_anew(dead, by, reason, NOTHING)
        return [("dead", made, fresh, None, dead.group_key)]

    def find_open_dead(
        self, kind: str | None, error: str | None, since: timedelta | None, *, even_ignored: bool
    ) -> list[tuple[int, str, str | None, str]]:
        """The dead letters of a filter, the oldest first."""
        found = [
            each
            for each in self.attempts.values()
            if each.buried and (each.ignored_at is None or even_ignored)
            and kind in (None, each.kind)
            and (error is None or error == each.fingerprint or error in (each.error or ""))
            and (since is None or each.ended_at >= self.now - since)
            and self.made_of(each.job_id) is None
        ]  # fmt: skip
        found.sort(key=lambda each: (each.ended_at, each.job_id))
        return [
            (each.job_id, each.kind, each.fingerprint, (each.error or "")[:200]) for each in found
        ]

    def requeue_jobs(
        self, ids: Sequence[int], by: str, reason: str, first: timedelta, apart: timedelta,
        *, even_ignored: bool,
    ) -> list[tuple[int, int]]:  # fmt: skip
        """Many of them, one after the other; what was made before is left out."""
        letters = [
            self.jobs[each]
            for each in sorted(set(ids) & self.jobs.keys())
            if self.jobs[each].state == "dead" and (even_ignored or self._ignored(each) is None)
        ]
        made = [
            (dead.id, *self._make_anew(dead, by, reason, first + apart * ids.index(dead.id)))
            for dead in letters
        ]
        return [(dead, job_id) for dead, job_id, fresh in made if fresh]

    def find_requeued(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        made = ((each, self.made_of(each)) for each in set(ids))
        return [(each, job_id) for each, job_id in made if job_id is not None]

    def ignore_jobs(
        self, ids: Sequence[int], by: str, reason: str
    ) -> list[tuple[int, bool, str | None, int | None]]:
        """Left as it is, once; not what was made anew."""
        answers = []
        for attempt in self._burials(ids):
            made = self.made_of(attempt.job_id)
            fresh = made is None and attempt.ignored_at is None
            answers.append((attempt.job_id, fresh, attempt.ignored, made))
            if fresh:
                attempt.ignored_at, attempt.ignored_by = self.now, by
                attempt.ignore_reason = reason
        return answers

    def prune_jobs(self, after: int, walk: int, kept: Sequence[Keep]) -> tuple[int | None, int]:
        """What ended longer ago than it is kept; what was made of a letter stays as long as that."""
        walked = sorted(job_id for job_id in self.jobs if job_id > after)[:walk]
        by_kind = {keep.kind: keep for keep in kept}
        old = [
            job.id
            for job in map(self.jobs.__getitem__, walked)
            if job.finished_at is not None
            and job.finished_at < self.now - self._keep(job, by_kind.get(job.kind, by_kind[""]))
            and job.requeued_from not in self.jobs
        ]
        least = min(length for keep in kept for length in astuple(keep)[1:])
        ended = len(walked) < walk or all(
            self.jobs[each].created_at >= self.now - least for each in walked
        )
        for job_id in old:
            del self.jobs[job_id]
        self.attempts = {held: row for held, row in self.attempts.items() if held[0] in self.jobs}
        return None if ended else walked[-1], len(old)

    def prune_keys(self) -> int:
        """Whatever has expired."""
        before = len(self.job_keys) + len(self.event_keys)
        self.job_keys = {at: key for at, key in self.job_keys.items() if key.expires_at > self.now}
        self.event_keys = {
            at: key for at, key in self.event_keys.items() if key.expires_at > self.now
        }
        return before - len(self.job_keys) - len(self.event_keys)

    def _make_anew(self, dead: Job, by: str, reason: str, run_in: timedelta) -> tuple[int, bool]:
        new_id = next(self.job_ids)  # Postgres takes a number before it finds the first one
        if (made := self.made_of(dead.id)) is not None:
            return made, False
        self.jobs[new_id] = Job(
            id=new_id, kind=dead.kind, key=dead.key, payload=dead.payload, queue=dead.queue,
            priority=dead.priority, event_id=dead.event_id, attempts_max=dead.attempts_max,
            group_key=dead.group_key, parent_id=dead.parent_id,
            blocked=dead.group_key is not None, run_at=self.now + run_in, created_at=self.now,
            requeued_from=dead.id, requeued_by=by, requeue_reason=reason,
            first_at=dead.first_at or dead.created_at,
        )  # fmt: skip
        return new_id, True

    def _burials(self, ids: Sequence[int]) -> list[Attempt]:
        return [each for each in self.attempts.values() if each.buried and each.job_id in ids]

    def _ignored(self, job_id: int) -> str | None:
        return next((each.ignored for each in self._burials([job_id])), None)

    def _keep(self, job: Job, keep: Keep) -> timedelta:
        if job.state == "succeeded":
            return keep.succeeded
        if job.state == "cancelled":
            return keep.cancelled
        return keep.dead if self._ignored(job.id) is None else keep.ignored


class DeskMoves(Player):
    """Calls of them."""

    @rule(tick=ticks, picks=picks, by=st.sampled_from(("ann", "bob")), held=st.booleans())
    def cancel(self, tick: timedelta, picks: list[int], by: str, *, held: bool) -> None:
        """Cancel jobs that run, or some of all, one of them perhaps that there never was."""
        self.model.now += tick
        pool = [job.id for job in self.running()] if held else [*self.model.jobs, 0]
        self.cancel_jobs([pool[pick % len(pool)] for pick in picks if pool], by)

    @rule(tick=ticks, pick=numbers, even_ignored=st.booleans(), regrets=st.booleans())
    def requeue(self, tick: timedelta, pick: int, *, even_ignored: bool, regrets: bool) -> None:
        """Ask for a dead letter mostly, sometimes for any job, or for one there never was."""
        self.model.now += tick
        [job_id] = self.letters([pick])
        made = self.requeue_job(job_id, even_ignored=even_ignored)
        if regrets and made is not None:
            self.cancel_jobs([made], "ann")

    @rule(
        tick=ticks,
        kind=st.sampled_from((None, "job", "mail")),
        error=st.sampled_from((None, "no", ERRORS[1][1:], "lease")),
        since=st.sampled_from((None, None, LEASE)),
        apart=st.sampled_from((NOTHING, SECOND)),
        even_ignored=st.booleans(),
        others=picks,
    )
    def requeue_filter(
        self, tick: timedelta, kind: str | None, error: str | None, since: timedelta | None,
        apart: timedelta, others: list[int], *, even_ignored: bool,
    ) -> None:  # fmt: skip
        """Ask for what a filter finds, and for some that somebody else was faster with."""
        self.model.now += tick
        found = self.model.find_open_dead(kind, error, since, even_ignored=even_ignored)
        self.call("find_open_dead", kind, error, since, None, even_ignored, expected=found)
        letters = [job_id for job_id, *_ in found]
        letters += [each for each in self.letters(others) if each not in letters]
        self.requeue_jobs(letters, apart, even_ignored=even_ignored)

    @rule(tick=ticks, picks=picks, by=st.sampled_from(("ann", "bob")), anew=st.booleans())
    def ignore(self, tick: timedelta, picks: list[int], by: str, *, anew: bool) -> None:
        """Leave some, and perhaps have them all made anew, which does not touch those."""
        self.model.now += tick
        letters = self.letters(picks)
        expected = self.model.ignore_jobs(letters, by, "known")
        self.call("ignore_jobs", letters, by, "known", expected=expected)
        if anew:
            self.requeue_jobs(letters, even_ignored=False)

    @rule(
        tick=ticks,
        kept=keeps,
        walk=st.sampled_from((5, MOST, MOST)),
        age=st.sampled_from((LEASE, KEY_TTL)),
    )
    def prune(self, tick: timedelta, kept: list[Keep], walk: int, age: timedelta) -> None:
        """Keep house, all of it, as the scheduler does."""
        self.model.now += tick
        after: int | None = 0
        while after is not None:
            expected = self.model.prune_jobs(after, walk, kept)
            kinds, *ages = ([*each] for each in zip(*map(astuple, kept), strict=True))
            self.call("prune_jobs", after, walk, kinds, *ages, expected=[expected])
            after, _ = expected
        self.call("prune_keys", MOST, expected=[(self.model.prune_keys(),)])
        self.call("prune_effects", age, MOST, expected=[(self.model.prune_effects(age, MOST),)])
        self.call("prune_groups", MOST, expected=ids([self.model.prune_groups(MOST)]))
        self.call("prune_parents", age, MOST, expected=[(self.model.prune_parents(age, MOST),)])

    def letters(self, picks: Sequence[int]) -> list[int]:
        """Choose dead letters by number, and among them others: each once."""
        dead = [job.id for job in self.jobs() if job.state == "dead"]
        chosen = {}
        for pick in picks:
            pool = [*self.model.jobs, 0] if pick % 4 == 0 or not dead else dead
            chosen[pool[pick // 4 % len(pool)]] = True
        return list(chosen)
