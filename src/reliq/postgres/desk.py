"""What the operator's commands ask of the tables."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

import asyncpg

from reliq.domain.event import Delivery, storable_key
from reliq.domain.job import EventId, JobId, NewJob, State
from reliq.domain.keep import Keeps
from reliq.domain.sealed import Sealer
from reliq.errors import RequestRefused
from reliq.postgres.cancel import cancel_jobs
from reliq.postgres.enqueue import columns
from reliq.postgres.failures import translated
from reliq.postgres.pruner import Pruner
from reliq.postgres.queries import query

REQUEUE_BATCH = 1_000
"""Dead letters of one statement."""

Row = dict[str, Any]

Sort = Literal["open", "ignored", "all"]
"""Of dead letters: those that wait for a person, those that somebody left as they are, or all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """
    Which dead letters: of a kind, of an error, of late, of a queue; None does not ask.

    `error` is a fingerprint, or a part of the text.
    """

    kind: str | None = None
    error: str | None = None
    since: timedelta | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class Desk:
    """Listings, requeue, triage, replay, prune and the figures of `doctor`."""

    pool: asyncpg.Pool

    async def list_dead(self, which: Which, sort: Sort, *, limit: int) -> list[Row]:
        """List the newest dead letters of a sort first."""
        return await self._fetch("list_dead", *astuple(which), sort, limit)

    async def find_open_dead(self, which: Which, *, even_ignored: bool) -> list[Row]:
        """Find those from which no new job was made."""
        return await self._fetch("find_open_dead", *astuple(which), even_ignored)

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
        job["result"] = None if job["result"] is None else json.loads(job["result"])
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

    async def requeue_job(
        self, job_id: JobId, *, by: str, reason: str, even_ignored: bool
    ) -> tuple[JobId, bool]:
        """
        Make a new job from a dead letter: its number, and whether it is new.

        Raises:
            RequestRefused: there is no such job, it is not dead, or somebody has ignored it.

        """
        found = await self._fetch("requeue_job", job_id, by, reason, even_ignored)
        if not found:
            raise RequestRefused(f"there is no job {job_id}")
        [row] = found
        if row["ignored"] is not None:
            raise RequestRefused(
                f"job {job_id} was ignored by {row['ignored']}; --ignored makes it anew all the same"
            )
        if row["job_id"] is None:
            raise RequestRefused(
                f"job {job_id} is {row['state']}: only a dead job can be made anew"
            )
        if row["group_key"] is not None:
            await self._fetch("advance_groups", [row["group_key"]])
        return JobId(row["job_id"]), row["fresh"]

    async def cancel_jobs(
        self, ids: Sequence[JobId], *, by: str, reason: str
    ) -> Mapping[JobId, State | None]:
        """
        Cancel jobs that wait, have those cancelled that run, and tell the state of each then.

        Raises:
            RequestRefused: `by` is empty.

        """
        return await cancel_jobs(self.pool, ids, by=by, reason=reason)

    async def requeue_jobs(
        self, ids: Sequence[JobId], *, by: str, reason: str, apart: timedelta, even_ignored: bool
    ) -> list[Row]:
        """
        Make a new job from each of these dead letters, due one `apart` from the other.

        Answers with the dead letter, its job, and whether that is new, for each that has one now.
        """
        made: list[Row] = []
        for start in range(0, len(ids), REQUEUE_BATCH):
            batch = ids[start : start + REQUEUE_BATCH]
            rows = await self._fetch(
                "requeue_jobs", batch, by, reason, apart * start, apart, even_ignored
            )
            new = {row["job_id"] for row in rows}
            await self._fetch("advance_stalled_groups")
            if len(rows) < len(batch):
                rows = await self._fetch("find_requeued", batch)
            made += [
                {"dead": row["id"], "job": row["job_id"], "fresh": row["job_id"] in new}
                for row in rows
            ]
        return made

    async def ignore_jobs(self, ids: Sequence[JobId], *, by: str, reason: str) -> list[Row]:
        """
        Note that dead letters were looked at and are left as they are.

        One row for each that there is: `fresh`, or who had `ignored` it before, or the `job_id`
        that was made of it.
        """
        return await self._fetch("ignore_jobs", ids, by, reason)

    async def ignore_event(self, event_id: EventId, *, by: str, reason: str) -> str | None:
        """
        Note the same of a delivery that could not be read: None, or who had done so before.

        Raises:
            RequestRefused: there is no such event, or it was read.

        """
        found = await self._fetch("ignore_event", event_id, by, reason)
        if not found:
            raise RequestRefused(f"there is no event {event_id}")
        [row] = found
        if not row["unread"]:
            raise RequestRefused(f"event {event_id} was read: there is nothing to ignore")
        before: str | None = row["ignored"]
        return before

    async def delivery(self, event_id: EventId, *, age_max: timedelta | None) -> Delivery:
        """
        Rebuild a delivery from what was stored of it.

        `age_max` is how long the keys of its jobs are remembered; None asks for it at any age.

        Raises:
            RequestRefused: there is no such event, its body was pruned, somebody has ignored it,
                or the keys of the jobs that it made may be forgotten by now.

        """
        event = await self.show_event(event_id)
        if event["body"] is None:
            raise RequestRefused(f"the body of event {event_id} was pruned: nothing to read again")
        if event["ignored"] is not None and age_max is not None:
            raise RequestRefused(
                f"event {event_id} was ignored by {event['ignored']}; --force reads it all the same"
            )
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

    async def list_unreadable(
        self, since: timedelta | None, sort: Sort, *, limit: int
    ) -> list[Row]:
        """List the newest events that nobody could read and nobody has replayed since."""
        return await self._fetch("list_unreadable", since, sort, limit)

    async def replay_event(
        self,
        delivery: Delivery,
        event_id: EventId,
        *,
        dedup_key: str | None,
        jobs: Sequence[NewJob],
        key_ttl: timedelta,
        force: bool,
        sealing: Sealer | None = None,
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
        arrays = columns(jobs, sealing)
        return await self._fetch("replay_event", event_id, key_ttl, *arrays, suffix)

    async def prune(self, keeps: Keeps) -> Mapping[str, int]:
        """Delete finished jobs and expired keys and empty old bodies, in bounded batches."""
        return await Pruner(self.pool, keeps).prune()

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
