"""
What an operator says of queues and kinds: limits, the breaker, pauses.

A place of a queue is free as soon as its job no longer runs under a lease that lasts: nothing is
given back. Tokens and failures are counted; an open breaker lets one job through, the probe.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from math import floor

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.draws import ERRORS, KINDS, LEASE, SECOND, ticks
from tests.model.model import Queue
from tests.model.player import Player, ids
from tests.model.rows import Held, Job, Limit, Pause, Place, Position
from tests.model.wishes import Back, Wish

LIMITED = ("slow", 5)

limits = st.sampled_from(
    [
        Limit(queue="slow", max_running=2, opens_after=4, open_for=SECOND),
        Limit(queue="slow", max_running=1, opens_after=3, open_for=SECOND),
        Limit(queue="slow", max_running=0),
        Limit(queue="slow", rate=0.5, burst=3, opens_after=4, open_for=SECOND),
        Limit(queue="slow", opens_after=1, open_for=SECOND),
        Limit(queue="slow", opens_after=2, open_for=SECOND),
        Limit(queue="slow", opens_after=2, open_for=LEASE),
        Limit(queue="slow", max_running=2, rate=2.0, burst=4, opens_after=2, open_for=LEASE),
        Limit(queue="default", max_running=5, opens_after=3, open_for=SECOND),
    ]
)
pauses = st.sampled_from((("queue", "slow"), ("queue", "default"), ("kind", "mail")))


class Limits(Queue):
    """What the statements do."""

    def claim_limited_jobs(
        self, places: int, lease: timedelta, worker: str, queue: str,
        lanes: Sequence[tuple[int, Position]], attempts_max: Mapping[str, int],
    ) -> tuple[list[Job], list[int]]:  # fmt: skip
        """As many due jobs as there is room for; with them the places that are free for them."""
        limit = self.limits[queue]
        room, free, tokens = self._room(limit, places)
        if ("queue", queue) in self.pauses:
            room = 0
        in_queue = [((queue, priority), after) for priority, after in lanes]
        claimed = self.claim_jobs(room, lease, worker, in_queue, attempts_max)
        if claimed and (limit.rate is not None or limit.open_until is not None):
            limit.filled_at = max(limit.filled_at, self.now)
            if limit.rate is not None:
                limit.tokens = tokens - len(claimed)
            limit.probe_id = limit.probe_fence = None
            if limit.open_until is not None:
                [probe] = claimed
                limit.probe_id, limit.probe_fence = probe.id, probe.fence
        return claimed, free

    def fill_places(self, queue: str, filled: Iterable[tuple[int, Held]]) -> None:
        """Note who fills which place; which of the claimed jobs takes which is Postgres's affair."""
        for place, held in filled:
            self.limit_places[queue, place] = Place(queue, place, *held)

    def _room(self, limit: Limit, places: int) -> tuple[int, list[int], float]:
        room, free, tokens = places, [], limit.tokens
        if limit.rate is not None:
            waited = max(0.0, (self.now - limit.filled_at).total_seconds())
            tokens = min(limit.burst, tokens + limit.rate * waited)
            room = min(room, floor(tokens))
        if limit.open_until is not None:
            probed = limit.probe_id is not None and self.holds((limit.probe_id, limit.probe_fence))
            room = 0 if limit.open_until > self.now or probed else min(room, 1)
        if limit.max_running is not None:
            taken = {
                each.place
                for each in self.limit_places.values()
                if each.queue == limit.queue and self.holds((each.job_id, each.fence))
            }
            free = [n for n in range(1, limit.max_running + 1) if n not in taken]
            room = max(0, min(room, limit.max_running - len(taken)))
        return room, free, tokens

    def set_limit(self, wanted: Limit) -> None:
        """The limits of one queue, instead of those it had; the breaker begins closed."""
        old = self.limits.get(wanted.queue)
        new = replace(wanted, tokens=wanted.burst, filled_at=self.now)
        if old is not None:
            new.tokens, new.filled_at = min(old.tokens, new.burst), old.filled_at
            new.probe_id, new.probe_fence = old.probe_id, old.probe_fence
        self.limits[wanted.queue] = new
        self._place_running(wanted)

    def _place_running(self, limit: Limit) -> None:
        """Whoever runs has a place, if the limit counts them; who no longer does has none."""
        kept = {
            key: each
            for key, each in self.limit_places.items()
            if each.queue == limit.queue and self.holds((each.job_id, each.fence))
        }
        for key in [key for key in self.limit_places if key[0] == limit.queue and key not in kept]:
            del self.limit_places[key]
        if limit.max_running is None:
            return
        placed = {(each.job_id, each.fence) for each in kept.values()}
        top = max((place for _, place in kept), default=0)
        running = [job for job in self.jobs.values() if job.queue == limit.queue]
        held = [(job.id, job.fence) for job in sorted(running, key=lambda job: job.id)]
        unplaced = [each for each in held if self.holds(each) and each not in placed]
        self.fill_places(limit.queue, enumerate(unplaced, top + 1))

    def lift_limit(self, queue: str) -> list[tuple[str]]:
        """Without limits there are no places."""
        for key in [key for key in self.limit_places if key[0] == queue]:
            del self.limit_places[key]
        return [] if self.limits.pop(queue, None) is None else [(queue,)]

    def pause(self, scope: str, name: str, by: str, reason: str) -> None:
        """Who says so last is remembered, and when it was said first."""
        pause = self.pauses.setdefault((scope, name), Pause(scope, name, by, reason, self.now))
        pause.by, pause.reason = by, reason

    def resume(self, scope: str, name: str) -> bool:
        """Whether it was paused."""
        return self.pauses.pop((scope, name), None) is not None

    def note_endings(self, told: Iterable[tuple[str, Held, bool]]) -> list[tuple[str, bool]]:
        """Failures in a row open a breaker; open, only its probe counts."""
        ends: dict[str, dict[Held, bool]] = {}
        for queue, held, failed in told:
            ends.setdefault(queue, {})[held] = failed
        answers = []
        for queue, failed in ends.items():
            limit = self.limits.get(queue)
            if limit is None or limit.opens_after is None:
                continue
            probe = failed.get((limit.probe_id, limit.probe_fence))
            count = sum(failed.values())
            if limit.open_until is not None:
                if probe is None:
                    continue
                limit.open_until = self.now + limit.open_for if probe else None
                limit.failures = limit.failures if probe else 0
            elif count or limit.failures or probe is not None:
                limit.failures = limit.failures + count if count == len(failed) else 0
                if limit.failures >= limit.opens_after:
                    limit.open_until = self.now + limit.open_for
            else:
                continue
            answers.append((queue, limit.open_until is not None))
        return answers


class LimitMoves(Player):
    """Calls of them."""

    @rule(limit=limits, lift=st.booleans())
    def limit(self, limit: Limit, *, lift: bool) -> None:
        if lift and self.model.limits:
            self.call("lift_limit", limit.queue, expected=self.model.lift_limit(limit.queue))
        else:
            self.set_limit(limit)

    def set_limit(self, limit: Limit) -> None:
        self.model.set_limit(limit)
        self.call(
            "set_limit", limit.queue, limit.max_running, limit.rate, limit.burst,
            limit.opens_after, limit.open_for,
            expected=[(None,)],
        )  # fmt: skip

    @rule(tick=ticks, what=pauses, by=st.sampled_from(("ann", "bob")), resume=st.booleans())
    def pause(self, tick: timedelta, what: tuple[str, str], by: str, *, resume: bool) -> None:
        """Pause a queue or a kind, or resume one, mostly one that is paused; workers hear of it."""
        self.model.now += tick
        self.enqueue_job(Wish(kind="mail", payload={}, run_in=SECOND, queue="slow"))
        if resume and self.model.pauses:
            what = what if what in self.model.pauses else next(iter(self.model.pauses))
            self.call("resume", *what, expected=ids([self.model.resume(*what)]))
        else:
            self.model.pause(*what, by, "why")
            self.call("pause", *what, by, "why", expected=[(None,)])
        self.find_lanes()

    @rule(
        limit=limits,
        first=st.sampled_from(("fails", "fails", "fails", "falls silent", "goes on")),
        then=st.sampled_from(("succeeds", "fails", "falls silent", "succeeds")),
        rounds=st.integers(2, 3),
    )
    def press(self, limit: Limit, first: str, then: str, rounds: int) -> None:
        """More comes to a queue than its limits allow, and not all goes well."""
        self.set_limit(limit)
        for n in range(rounds):
            for _ in range(2):
                self.enqueue_job(Wish(kind="job", payload={}, queue="slow"))
            for worker, places in (("w1", 1), ("w2", 4)):
                self.claim_due(places, worker, KINDS[0], lanes=[LIMITED])
            how = first if n == 0 else then if n == 1 else "succeeds"
            held = [(job.id, job.fence) for job in self.running() if job.queue == "slow"]
            if how == "fails":
                back = Back(after=SECOND, ended="failed", error=ERRORS[0])
                self.settle_queued(dict.fromkeys(held, back))
            elif how == "succeeds":
                self.settle_succeeded(held)
            self.model.now += LEASE if how == "falls silent" else min(limit.open_for, LEASE)
