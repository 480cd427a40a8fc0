"""
What the queue's SQL does, as a small program: no SQL, no concurrency, time stands still.

One method for each shipped statement, with the statement's name, its arguments and its answer.
Read it as the short form of `reliq/postgres/sql`: who may change a job, and what changes.

- Only `claim_jobs` and `claim_limited_jobs` make a job `running`. That raises the fence and
  counts the attempt.
- A worker names (id, fence). What no longer names a running job's own fence changes nothing.
- Only `reap_jobs` takes a job from a silent worker, and only once its lease is over.
- A job ends once. What a person wants to run again is a new job.
- A job that is to be cancelled never goes back to the queue, and its lease gets no longer.

This is how a job goes through the queue. What jobs have in common is in a file for each subject,
beside the moves that play it: groups, limits, families, effects, and what a person does.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from tests.model.groups import Groups
from tests.model.rows import Attempt, Event, EventKey, Held, Job, JobKey, Lane, Position
from tests.model.wishes import UNTRIED, Back, Burial, Wish

ALERT_KEY_TTL = timedelta(days=35)


class Queue(Groups):
    """What the statements do to a job from its enqueue to its end."""

    def store_event(
        self, source: str, dedup_key: str | None, key_ttl: timedelta, wishes: Sequence[Wish]
    ) -> tuple[int, bool, int]:
        """An event comes with all its jobs; one that was stored before makes nothing."""
        held = self.event_keys.get((source, dedup_key or ""))
        if held is not None and held.expires_at > self.now:
            return held.event_id, True, 0
        event_id = next(self.event_ids)
        self.events[event_id] = Event(
            id=event_id, source=source, dedup_key=dedup_key, received_at=self.now
        )
        if dedup_key is not None:
            self.event_keys[source, dedup_key] = EventKey(
                source, dedup_key, event_id, self.now + key_ttl
            )
        places: Counter[str] = Counter()
        keyed: list[tuple[Wish, str]] = []
        for wish in wishes:
            key = wish.key
            if key is None:
                places[wish.kind] += 1
                key = f"event:{event_id}:{wish.kind}:{places[wish.kind]}"
            keyed.append((wish, key))
        keyed.sort(key=lambda each: each[0].group or "")
        made = [not self._enqueue(*each, key_ttl, event_id=event_id)[1] for each in keyed]
        return event_id, False, sum(made)

    def enqueue_job(self, wish: Wish, key_ttl: timedelta) -> tuple[int, bool]:
        """One job per kind and key, for as long as the key is kept."""
        return self._enqueue(wish, wish.key, key_ttl)

    def enqueue_keyed_jobs(
        self, wishes: Sequence[Wish], key_ttl: timedelta
    ) -> list[tuple[int, int, bool]]:
        """Many of them: those without a group by their keys, then group after group."""

        def order(place: int) -> tuple[Any, ...]:
            wish = wishes[place]
            if wish.group is not None:
                return (wish.group,)
            return "", wish.kind, wish.key is None, wish.key

        return [
            (place + 1, *self.enqueue_job(wishes[place], key_ttl))
            for place in sorted(range(len(wishes)), key=order)
        ]

    def _enqueue(
        self, wish: Wish, key: str | None, key_ttl: timedelta, **more: Any
    ) -> tuple[int, bool]:
        if wish.group is not None:
            self.lock_group(wish.group)
        job_id = next(self.job_ids)
        held = None if key is None else self.job_keys.get((wish.kind, key))
        if held is not None and held.expires_at > self.now:
            return held.job_id, True
        if key is not None:
            self.job_keys[wish.kind, key] = JobKey(wish.kind, key, job_id, self.now + key_ttl)
        self.jobs[job_id] = Job(
            id=job_id, kind=wish.kind, key=f"job:{job_id}" if key is None else key,
            payload=wish.payload, queue=wish.queue, priority=wish.priority, group_key=wish.group,
            blocked=wish.group is not None, run_at=self.now + wish.run_in, created_at=self.now,
            **more,
        )  # fmt: skip
        if wish.group is not None:
            self.advance_groups([wish.group], wish.running)
        return job_id, False

    def find_lanes(self) -> list[tuple[str, int, list[str], list[str]]]:
        """Where queued jobs are, due or not; which queues have limits, and which kinds rest."""
        lanes = sorted({job.lane for job in self.jobs.values() if job.ready})
        kinds = sorted(name for scope, name in self.pauses if scope == "kind")
        return [
            (queue, priority, sorted(self.limits), kinds)
            for queue, priority in lanes
            if ("queue", queue) not in self.pauses
        ]

    def claim_jobs(
        self, places: int, lease: timedelta, worker: str,
        lanes: Iterable[tuple[Lane, Position]], attempts_max: Mapping[str, int],
    ) -> list[Job]:  # fmt: skip
        """Due jobs of known kinds, lane after lane, the oldest of a lane first."""
        found: list[Job] = []
        for lane, after in lanes:
            due = [
                job
                for job in self.jobs.values()
                if job.ready and job.lane == lane and job.kind in attempts_max
                and job.run_at <= self.now and job.position > after
            ]  # fmt: skip
            found += sorted(due, key=lambda job: job.position)
        for job in found[:places]:
            job.state, job.worker, job.alone = "running", worker, False
            job.fence += 1
            job.attempt += 1
            job.attempts_max = attempts_max[job.kind]
            job.claimed_at = self.now
            job.lease_until = job.reap_at = self.now + lease
        return found[:places]

    def _mine(self, held: Iterable[Held]) -> list[Job]:
        return [job for each in held if (job := self.mine(each)) is not None]

    def renew_leases(self, held: Sequence[Held], lease: timedelta) -> list[tuple[int, bool]]:
        """Leases that are held and have not ended last longer; `reap_at` may stay behind, it is a hint."""
        for job in (mine := self._mine(filter(self.holds, held))):
            if not job.is_unwanted:
                job.lease_until = self.now + lease
        return [(job.id, job.is_unwanted) for job in mine]

    def isolate_job(self, held: Held, lease: timedelta) -> list[int]:
        """The job runs with nothing beside it from now on."""
        mine = [job for job in self._mine(filter(self.holds, [held])) if not job.is_unwanted]
        for job in mine:
            job.alone = True
            job.lease_until = self.now + lease
        return [job.id for job in mine]

    def find_cancelled(self, held: Sequence[Held]) -> list[int]:
        """What is still held and is to be cancelled."""
        return [job.id for job in self._mine(held) if job.is_unwanted]

    def settle_succeeded(self, held: Iterable[Held]) -> list[int]:
        """Done. Lease and `reap_at` stay as they are: nobody looks at them again."""
        for job in (mine := self._mine(held)):
            job.state, job.finished_at, job.lost_leases = "succeeded", self.now, 0
        return [job.id for job in mine]

    def settle_with_result(self, results: Mapping[Held, Mapping[str, Any]]) -> list[int]:
        """Done, with something to tell."""
        for job in self._mine(results):
            job.result = results[job.id, job.fence]
        return self.settle_succeeded(results)

    def settle_queued(self, endings: Mapping[Held, Back]) -> list[int]:
        """Back to the queue, due later; a worker that stops says nothing about the job."""
        for job in (mine := self._mine(endings)):
            end = endings[job.id, job.fence]
            job.last_error = job.last_error if end.error is None else end.error
            self._record(job, end.ended, error=end.error, status=end.status)
            self._to_queue(job, end.after)
            job.attempt -= end.ended in UNTRIED
            if end.ended != "handed_back":
                job.lost_leases = 0
        return [job.id for job in mine]

    def settle_dead(self, endings: Mapping[Held, Burial]) -> list[tuple[int, int | None]]:
        """Dead, with the reason, and with an alert for each new error."""
        mine = self._mine(endings)
        for job in mine:
            end = endings[job.id, job.fence]
            job.state, job.finished_at, job.lost_leases = "dead", self.now, 0
            job.dead_reason, job.last_error = end.reason, end.error
            self._record(
                job, end.ended, error=end.error, status=end.status, buried=True,
                fingerprint=end.fingerprint,
            )  # fmt: skip
        prints = {job.id: endings[job.id, job.fence].fingerprint for job in mine}
        mine.sort(key=lambda job: (job.kind, prints[job.id], job.id))
        return [(job.id, self._raise_alert(job, prints[job.id])) for job in mine]

    def reap_jobs(self) -> list[tuple[int, str, int, str | None, bool, int | None]]:
        """A lease that is over costs its attempt; the third in a row alone is poison."""
        lost: list[Job] = []
        for job in self.jobs.values():
            if not job.is_running or job.reap_at > self.now:
                continue
            if job.lease_until > self.now:
                job.reap_at = job.lease_until
                continue
            lost.append(job)
            poison = job.alone and job.lost_leases >= 2
            spent = job.attempt >= job.attempts_max
            poison, spent = poison and not job.is_unwanted, spent and not job.is_unwanted
            job.last_error = f"the worker {job.worker} fell silent and its lease ended"
            self._record(
                job, "lease_lost", error=job.last_error, buried=poison or spent,
                fingerprint="lease_lost" if poison or spent else None,
            )  # fmt: skip
            self._to_queue(job, timedelta(0))
            job.lost_leases += 1
            if poison or spent:
                job.state, job.finished_at = "dead", self.now
                job.dead_reason = "poison" if poison else "attempts"
        self.reaper[True].walked_to = self.now - self.overlap
        lost.sort(key=lambda job: (job.kind, job.id))
        return [
            (
                job.id, job.kind, job.fence, job.worker, job.state == "dead",
                self._raise_alert(job, "lease_lost") if job.state == "dead" else None,
            )
            for job in lost
        ]  # fmt: skip

    def hand_back_unheard(self, worker: str, heard: Sequence[Held]) -> list[int]:
        """What a worker's name is on, and the worker has not heard of, goes back untried."""
        unheard = [
            job
            for job in self.jobs.values()
            if job.is_running and job.worker == worker and (job.id, job.fence) not in heard
        ]
        for job in unheard:
            self._record(job, "handed_back")
            self._to_queue(job, timedelta(0))
            job.attempt -= 1
        return [job.id for job in unheard]

    def _to_queue(self, job: Job, after: timedelta) -> None:
        """Unless somebody wants it to be cancelled."""
        job.state, job.run_at = "queued", self.now + after
        job.lease_until = job.reap_at = None
        if job.is_unwanted:
            job.state, job.finished_at = "cancelled", self.now

    def _record(self, job: Job, ended: str, **more: Any) -> None:
        self.attempts[job.id, job.fence] = Attempt(
            job_id=job.id, fence=job.fence, attempt=job.attempt, kind=job.kind, worker=job.worker,
            started_at=job.claimed_at, ended_at=self.now, ended=ended, **more,
        )  # fmt: skip

    def _raise_alert(self, dead: Job, fingerprint: str) -> int | None:
        """One alert per kind, error and window of time, and of each window one for all the rest."""
        if dead.kind == "alert":
            return None
        seconds = self.alert_window.total_seconds()
        window = int(self.now.timestamp() // seconds)
        began = int(window * seconds * 1000)
        payload = {
            "job_id": dead.id, "kind": dead.kind, "reason": dead.dead_reason,
            "attempt": dead.attempt, "error": dead.last_error,
        }  # fmt: skip
        key = f"{dead.kind}:{fingerprint}:{window}"
        if ("alert", key) in self.job_keys:
            return None
        free = [place for place in self.alert_places.values() if place.taken_in < began]
        if free:
            free[0].taken_in = began
        else:
            payload["more"], key = len(self.alert_places), f"*:more:{window}"
        if ("alert", key) in self.job_keys:
            return None
        job_id, _ = self.enqueue_job(
            Wish(kind="alert", payload=payload, key=key, priority=0), ALERT_KEY_TTL
        )
        return job_id
