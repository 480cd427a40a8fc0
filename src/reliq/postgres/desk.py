"""What the operator's commands ask of the tables."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from reliq.domain.event import Delivery, storable_key
from reliq.domain.job import EventId, JobId, NewJob
from reliq.errors import RequestRefused
from reliq.postgres.enqueue import columns
from reliq.postgres.failures import translated
from reliq.postgres.queries import query

PRUNE_BATCH = 5_000
"""Rows of one prune statement: short enough that no claim waits for it."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Desk:
    """Listings, requeue, replay, prune and the figures of `doctor`."""

    pool: asyncpg.Pool

    async def list_dead(
        self, *, kind: str | None, since: timedelta | None, limit: int
    ) -> list[Row]:
        """List the newest dead letters first."""
        return await self._fetch("list_dead", kind, since, limit)

    async def list_jobs(self, *, limit: int) -> list[Row]:
        """List the newest jobs, oldest first."""
        return await self._fetch("list_jobs", limit)

    async def show_job(self, job_id: JobId) -> Row:
        """
        Show one job with its attempts and the event it came from.

        Raises:
            RequestRefused: there is no such job.

        """
        found = await self._fetch("show_job", job_id)
        if not found:
            raise RequestRefused(f"there is no job {job_id}")
        [job] = found
        job["payload"] = json.loads(job["payload"])
        job["attempts"] = await self._fetch("show_attempts", job_id)
        job["family"] = next(iter(await self._fetch("show_family", job_id)), None)
        job["event"] = None if job["event_id"] is None else await self.show_event(job["event_id"])
        return job

    async def show_event(self, event_id: EventId) -> Row:
        """
        Show one stored event; its headers decoded, its body as bytes, or None once pruned.

        Raises:
            RequestRefused: there is no such event.

        """
        found = await self._fetch("show_event", event_id)
        if not found:
            raise RequestRefused(f"there is no event {event_id}")
        [event] = found
        event["headers"] = json.loads(event["headers"])
        return event

    async def requeue_job(self, job_id: JobId, *, by: str, reason: str) -> tuple[JobId, bool]:
        """
        Make a new job from a dead letter: its number, and whether it is new.

        Raises:
            RequestRefused: there is no such job, or it is not dead.

        """
        found = await self._fetch("requeue_job", job_id, by, reason)
        if not found:
            raise RequestRefused(f"there is no job {job_id}")
        [row] = found
        if row["job_id"] is None:
            raise RequestRefused(
                f"job {job_id} is {row['state']}: only a dead job can be made anew"
            )
        return JobId(row["job_id"]), row["fresh"]

    async def delivery(self, event_id: EventId, *, age_max: timedelta | None) -> Delivery:
        """
        Rebuild a delivery from what was stored of it.

        `age_max` is how long the keys of its jobs are remembered; None asks for it at any age.

        Raises:
            RequestRefused: there is no such event, its body was pruned, or the keys of the jobs
                that it made may be forgotten by now.

        """
        event = await self.show_event(event_id)
        if event["body"] is None:
            raise RequestRefused(f"the body of event {event_id} was pruned: nothing to read again")
        was_read = event["parse_error"] is None or event["replayed_at"] is not None
        if was_read and age_max is not None and event["age"] >= age_max:
            raise RequestRefused(
                f"event {event_id} is {event['age'].days} days old, and the keys of its jobs may be "
                "forgotten: --force makes its jobs again"
            )
        headers: Mapping[str, str] = event["headers"]
        pairs = [(name.encode("latin-1"), value.encode("latin-1", "replace"))
                 for name, value in headers.items()]  # fmt: skip
        return Delivery(source=event["source"], headers=pairs, body=event["body"])

    async def list_unreadable(self, *, since: timedelta | None, limit: int) -> list[Row]:
        """List the newest events that nobody could read and nobody has replayed since."""
        return await self._fetch("list_unreadable", since, limit)

    async def replay_event(
        self,
        delivery: Delivery,
        event_id: EventId,
        *,
        dedup_key: str | None,
        jobs: Sequence[NewJob],
        key_ttl: timedelta,
        force: bool,
    ) -> list[Row]:
        """
        Enqueue the jobs of an event read again: kind, job_id and duplicate for each.

        The event takes the dedup key that it did not have when it could not be read, so that
        its next delivery is a duplicate.

        Raises:
            RequestRefused: it was delivered again since, and that event has the key.

        """
        if dedup_key is not None:
            key = storable_key(dedup_key)
            [row] = await self._fetch("hold_event_key", event_id, delivery.source, key, key_ttl)
            if row["event_id"] != event_id and not force:
                raise RequestRefused(
                    f"event {event_id} is the same fact as event {row['event_id']}, which has "
                    "its jobs: --force makes them a second time"
                )
        suffix = f":replay-{secrets.token_hex(4)}" if force else ""
        jobs = [job if job.key is None else replace(job, key=job.key + suffix) for job in jobs]
        return await self._fetch("replay_event", event_id, key_ttl, *columns(jobs), suffix)

    async def prune(
        self, *, jobs: timedelta, dead: timedelta, bodies: timedelta
    ) -> Mapping[str, int]:
        """
        Delete finished jobs and expired keys and empty old bodies, in bounded batches.

        Each age counts from the end of a job or the arrival of an event; `dead` is for dead
        letters, and for bodies that were never read.
        """
        pruned = {
            "jobs": await self._walk("prune_jobs", jobs, dead),
            "bodies": await self._walk("prune_bodies", bodies, dead),
            "keys": 0,
        }
        while (await self._fetch("prune_parents", jobs, PRUNE_BATCH))[0]["pruned"]:
            pass  # they tell of jobs that are gone
        while (count := (await self._fetch("prune_keys", PRUNE_BATCH))[0]["pruned"]) > 0:
            pruned["keys"] += count
        return pruned

    async def _walk(self, name: str, *ages: timedelta) -> int:
        pruned = 0
        after: int | None = 0
        while after is not None:
            [row] = await self._fetch(name, *ages, after, PRUNE_BATCH)
            pruned += row["pruned"]
            after = row["walked_to"]
        return pruned

    async def examine(self) -> Row:
        """Ask for the figures of `doctor`."""
        [row] = await self._fetch("examine")
        return row

    async def read_clock(self) -> datetime:
        """Read the database's clock, for comparison with another."""
        [row] = await self._fetch("tell_time")
        now: datetime = row["now"]
        return now

    async def find_unknown_kinds(self, kinds: Sequence[str]) -> Mapping[str, int]:
        """Name the kinds that have due jobs and are not among these."""
        rows = await self._fetch("find_unknown_kinds", list(kinds))
        return {row["kind"]: row["jobs"] for row in rows}

    async def _fetch(self, name: str, *arguments: object) -> list[Row]:
        with translated():
            rows = await self.pool.fetch(query(name).text, *arguments)
        return [dict(row) for row in rows]
