"""The worker's ports on Postgres: claim, settle, renew, reap, and the handler's transaction."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Final

import anyio
import asyncpg
import structlog

from reliq.domain.family import Family
from reliq.domain.job import Claim, Enqueued, Fence, JobId, NewJob, WorkerName
from reliq.domain.lanes import Lane, Lanes, Position
from reliq.domain.outcome import (
    Bury,
    Requeue,
    Settlement,
    Succeed,
    SucceedWith,
    blames_upstream,
    fingerprint,
)
from reliq.domain.sealed import Sealer
from reliq.errors import LeaseLost, StoreError
from reliq.ports import Held, Reaped, Reservation, Settled
from reliq.postgres.enqueue import enqueue_job
from reliq.postgres.failures import translated
from reliq.postgres.families import end_open_families, fan_out
from reliq.postgres.pool import Connection, check_not_ended
from reliq.postgres.queries import query

log = structlog.get_logger()

REAP_WALK = 50_000
"""Index entries of one reaper's pass, about 1 µs each; more than any claim takes, and more than
a worker finishes between two passes."""

_COLUMNS = itemgetter(
    "id", "fence", "kind", "key", "payload", "attempt", "attempts_max", "lost_leases", "event_id",
    "waited", "group_key", "queue", "parent_id",
)  # fmt: skip
"""Of a claimed row, in the order of `Claim`."""

_IDLE = "set local idle_in_transaction_session_timeout = {}"

NO_BOUNDS: Final[Mapping[str, int]] = MappingProxyType({})

LANES_EVERY_S = 1.0
"""A new (queue, priority) is found after at most this long; by an idle worker at once."""


@dataclass(slots=True, kw_only=True)
class PostgresQueue:
    """
    Fits `ports.Queue`, `Leases`, `Reaper` and `Slots` for one worker.

    `transactions` lends connections to handlers and `effects` asks for `job.once`, so that however many handlers wait
    for one, neither a claim, a settle nor an effect does. `attempts_max` names the kinds this worker knows, each with its policy's bound; no other
    kind is claimed. `alerts` says whether jobs that die make a job of kind `alert`. `ring` is called when
    an ending has made another job ready, or room for one. `queues` are all that is claimed of, if there are any;
    `sealing` is for the jobs of slots and of families.
    """

    pool: asyncpg.Pool
    transactions: asyncpg.Pool
    effects: asyncpg.Pool
    worker: WorkerName
    lease: timedelta
    deadline: timedelta
    attempts_max: Mapping[str, int]
    alerts: bool
    alert_window: timedelta
    key_ttl: timedelta
    observe: Callable[[StoreError | None], None] = lambda _: None
    ring: Callable[[], None] = lambda: None
    queues: frozenset[str] = frozenset()
    sealing: Sealer | None = None
    _lanes: Lanes = field(default_factory=Lanes)
    _limited: frozenset[str] = frozenset()
    _paused: frozenset[str] = frozenset()
    _lanes_found_at: float = float("-inf")
    _untold: StoreError | None = None

    async def claim_jobs(
        self, places: int, rooms: Mapping[str, int] = NO_BOUNDS
    ) -> Sequence[Claim]:
        """
        Lease at most `places` due jobs, behind the cursors or from the heads.

        Of a queue that is in `rooms` no more than it says there. An error behind jobs that are
        leased already is raised at the next call: what it may have leased, too, is not forgotten.
        """
        if (error := self._untold) is not None:
            self._untold = None
            raise error
        now = anyio.current_time()
        if now - self._lanes_found_at >= LANES_EVERY_S:
            await self._find_lanes(now)
        order = self._lanes.order(now)
        if not order:
            self._lanes_found_at = float("-inf")
            return []
        rows: list[asyncpg.Record] = []
        apart = self._limited.union(rooms)
        for queue, lanes in groupby(
            order, key=lambda at: at[0].queue if at[0].queue in apart else ""
        ):
            taken = sum(row["queue"] == queue for row in rows) if queue in rooms else 0
            if (most := min(places - len(rows), rooms.get(queue, places) - taken)) > 0:
                try:
                    rows += await self._claim(most, list(lanes), is_limited=queue in self._limited)
                except StoreError as error:
                    if not rows:
                        raise
                    self._untold = error  # what is leased is handed over first
                    break
        rows.sort(key=itemgetter("priority", "run_at", "id"))
        newest = {(row["queue"], row["priority"]): row for row in rows}
        for lane, row in newest.items():
            self._lanes.advance(Lane(*lane), Position(row["run_at"], row["id"]))
        if len(rows) < places:
            self._lanes.rewind(now)
            self._lanes_found_at = float("-inf")
        return [_claim(row) for row in rows]

    async def _claim(
        self, places: int, lanes: Sequence[tuple[Lane, Position]], *, is_limited: bool
    ) -> list[asyncpg.Record]:
        """Claim from neighbouring lanes: of one queue that has limits or bounds, or of any without."""
        kinds = {kind: most for kind, most in self.attempts_max.items() if kind not in self._paused}
        return await self._fetch(
            "claim_limited_jobs" if is_limited else "claim_jobs",
            places,
            self.lease,
            self.worker,
            lanes[0][0].queue if is_limited else [lane.queue for lane, _ in lanes],
            [lane.priority for lane, _ in lanes],
            [position.run_at for _, position in lanes],
            [position.job_id for _, position in lanes],
            list(kinds),
            list(kinds.values()),
        )

    async def _find_lanes(self, now: float) -> None:
        rows = await self._fetch("find_lanes")
        self._lanes.discover(
            Lane(row["queue"], row["priority"])
            for row in rows
            if not self.queues or row["queue"] in self.queues
        )
        for row in rows[:1]:  # where nothing is queued, what runs is of the queues known before
            self._limited = frozenset(row["limited_queues"])
            self._paused = frozenset(row["paused_kinds"])
        self._lanes_found_at = now

    async def settle_jobs(self, settlements: Sequence[tuple[Claim, Settlement]]) -> Settled:
        """
        Write a batch, one statement per sort of settlement.

        A statement that fails leaves the others' work done: settling a settled job again
        changes nothing and reports it as lost, so the caller repeats only what raised.
        """
        kept: set[JobId] = set()
        waits: set[JobId] = set()
        alerts: dict[JobId, JobId] = {}
        if done := [claim for claim, what in settlements if isinstance(what, Succeed)]:
            rows = await self._fetch("settle_succeeded", *_pairs(done))
            kept |= {row["id"] for row in rows}
        if told := [(claim, what) for claim, what in settlements if isinstance(what, SucceedWith)]:
            results = [what.result for _, what in told]
            rows = await self._fetch(
                "settle_with_result", *_pairs([claim for claim, _ in told]), results
            )
            kept |= {row["id"] for row in rows}
        if back := [(claim, what) for claim, what in settlements if isinstance(what, Requeue)]:
            rows = await self._fetch(
                "settle_queued",
                *_pairs([claim for claim, _ in back]),
                [what.after for _, what in back],
                [what.ended for _, what in back],
                [what.error for _, what in back],
                [what.status for _, what in back],
                [what.error_class for _, what in back],
            )
            kept |= {row["id"] for row in rows}
            waits = {row["id"] for row in rows if not row["cancelled"]}
        if dead := [(claim, what) for claim, what in settlements if isinstance(what, Bury)]:
            rows = await self._fetch(
                "settle_dead",
                *_pairs([claim for claim, _ in dead]),
                [what.reason for _, what in dead],
                [what.ended for _, what in dead],
                [what.error for _, what in dead],
                [what.status for _, what in dead],
                [fingerprint(what.error) for _, what in dead],
                self.alerts,
                self.alert_window,
                [what.error_class for _, what in dead],
            )
            kept |= {row["id"] for row in rows}
            alerts = {row["id"]: row["alert_id"] for row in rows if row["alert_id"]}
        over = kept - waits
        await self._follow(claim for claim, _ in settlements if claim.job_id in over)
        await self._tell_breakers(
            (claim, what) for claim, what in settlements if claim.job_id in kept
        )
        lost = {claim.job_id for claim, _ in settlements} - kept
        return Settled(frozenset(lost), alerts)

    async def _follow(self, ended: Iterable[Claim]) -> None:
        """Do what follows jobs that have ended; what fails here is done on a beat."""
        groups, parents = set(), set()
        for claim in ended:
            groups.add(claim.group_key)
            parents.add(claim.parent_id)
        with suppress(StoreError):
            if groups := groups - {None}:
                [row] = await self._fetch("advance_groups", list(groups))
                if row["advanced"]:
                    self.ring()
            if parents := parents - {None}:
                await self._fetch("end_families", list(parents))

    async def _tell_breakers(self, settlements: Iterable[tuple[Claim, Settlement]]) -> None:
        """Say of limited queues which attempts failed; what no upstream is to blame for is left."""
        ended = [(claim, what) for claim, what in settlements if claim.queue in self._limited]
        if ended:
            self.ring()  # what comes short for want of a place need not wait for the poll
        told = [
            (claim.queue, *claim.held, blamed)
            for claim, what in ended
            if (blamed := blames_upstream(what)) is not None
        ]
        if told:
            with suppress(StoreError):
                for row in await self._fetch("note_endings", *map(list, zip(*told, strict=True))):
                    if row["open"]:
                        log.warning("breaker.open", queue=row["queue"])

    async def follow_up(self) -> None:
        """Do what follows an ending and was not done, because its worker died in between."""
        [row] = await self._fetch("advance_stalled_groups")
        if row["advanced"]:
            log.warning("groups.advanced", groups=row["advanced"], why="a worker died in between")

    async def fan_out(self, connection: Connection, parent: JobId, family: Family) -> int:
        """Make a job's children in the transaction of `connection`."""
        return await fan_out(connection, parent, family, self.sealing)

    async def end_open_families(self) -> Mapping[JobId, JobId]:
        """Make the final jobs that those who settled the last children did not make."""
        return await end_open_families(self._fetch)

    async def isolate_job(self, claim: Claim) -> bool:
        """Record that a suspect runs alone, and renew its lease."""
        return bool(await self._fetch("isolate_job", claim.job_id, claim.fence, self.lease))

    async def hand_back_unheard(self, heard: Sequence[Held]) -> Sequence[JobId]:
        """Give back what this incarnation claimed without hearing of it."""
        ids, fences = [job_id for job_id, _ in heard], [fence for _, fence in heard]
        rows = await self._fetch("hand_back_unheard", self.worker, ids, fences)
        return [JobId(row["id"]) for row in rows]

    async def find_unknown_kinds(self) -> Mapping[str, int]:
        """Name kinds with due jobs that no handler here takes."""
        rows = await self._fetch("find_unknown_kinds", list(self.attempts_max))
        return {row["kind"]: row["jobs"] for row in rows}

    async def find_cancelled(self, held: Sequence[Held]) -> frozenset[JobId]:
        """Tell which of the jobs that are held here somebody wants to be cancelled."""
        ids, fences = [job_id for job_id, _ in held], [fence for _, fence in held]
        rows = await self._fetch("find_cancelled", ids, fences)
        return frozenset(row["id"] for row in rows)

    async def renew_leases(self, held: Sequence[Held]) -> Mapping[JobId, bool]:
        """Lengthen leases in one statement; what is not returned is lost."""
        ids, fences = [job_id for job_id, _ in held], [fence for _, fence in held]
        rows = await self._fetch("renew_leases", ids, fences, self.lease)
        return {row["id"]: row["cancelled"] for row in rows}

    async def reap_jobs(self) -> Sequence[Reaped]:
        """Give back or bury the jobs of ended leases."""
        rows = await self._fetch(
            "reap_jobs", REAP_WALK, self.deadline, self.alerts, self.alert_window
        )
        if rows:
            with suppress(StoreError):
                await self.follow_up()
        return [
            Reaped(
                job_id=row["id"], kind=row["kind"], fence=row["fence"], dead=row["dead"],
                alert_id=row["alert_id"],
            )
            for row in rows
        ]  # fmt: skip

    async def check_reaper(self) -> None:
        """Pull the reaper's mark behind every running job."""
        await self._fetch("check_reaper")

    async def database_now(self) -> datetime:
        """Ask the database for its time."""
        [row] = await self._fetch("tell_time")
        now: datetime = row["now"]
        return now

    async def enqueue_job(self, job: NewJob) -> Enqueued:
        """Put one job into the queue, once per kind and key."""
        with self._observed():
            return await enqueue_job(self.pool, job, self.key_ttl, sealing=self.sealing)

    @asynccontextmanager
    async def transaction(
        self, claim: Claim, told: Sequence[str] = ()
    ) -> AsyncIterator[Connection]:
        """
        Open a transaction that ends with the fenced settle of `claim`, with the result `told` by then.

        It is rolled back and committed out of reach of cancellation, within the deadline of a
        statement, and the server ends it itself when it idles for longer than half a lease: a
        worker that was stopped inside it must not block the takeover.
        """
        with translated():
            connection = await self.transactions.acquire()
        try:
            transaction = connection.transaction()
            with translated():
                await transaction.start()
                await connection.execute(_IDLE.format(round(self.lease.total_seconds() * 500)))
            try:
                yield connection
                name = "settle_with_result" if told else "settle_succeeded"
                results = [list(told)] if told else []
                with translated():
                    check_not_ended(connection)
                    kept = await connection.fetch(query(name).text, *_pairs([claim]), *results)
                if not kept:
                    raise LeaseLost(  # noqa: TRY301 - it ends the transaction like any other
                        f"job {claim.job_id} is no longer ours: rolled back"
                    )
            except BaseException:
                with anyio.CancelScope(shield=True), translated():
                    if connection.is_in_transaction():
                        await transaction.rollback()
                raise
            with anyio.CancelScope(shield=True), translated():
                await transaction.commit()
                await self._follow([claim])
                await self._tell_breakers([(claim, Succeed())])
        finally:
            with anyio.CancelScope(shield=True):
                await self.transactions.release(connection)

    async def reserve_effect(self, claim: Claim, key: str) -> Reservation:
        """Reserve an effect under the claim's fence, or learn what is known of it."""
        with translated():
            statement = query("reserve_effect").text
            [row] = await self.effects.fetch(statement, key, *claim.held)
        result = None if row["result"] is None else json.loads(row["result"])
        return Reservation(row["answer"], row["holder"], result)

    async def finish_effect(self, claim: Claim, key: str, result_json: str) -> bool:
        """Remember an effect and its result, under the fence."""
        with translated():
            statement = query("finish_effect").text
            return bool(await self.effects.fetch(statement, key, *claim.held, result_json))

    async def release_effect(self, claim: Claim, key: str) -> bool:
        """Forget a reservation, under the fence."""
        with translated():
            statement = query("release_effect").text
            return bool(await self.effects.fetch(statement, key, *claim.held))

    async def _fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        with self._observed(), translated():
            return await self.pool.fetch(query(name).text, *arguments)

    @contextmanager
    def _observed(self) -> Iterator[None]:
        """Tell `observe` how a call ended: what it raised of ours, or None."""
        try:
            yield
        except StoreError as error:
            self.observe(error)
            raise
        self.observe(None)


def _pairs(claims: Sequence[Claim]) -> tuple[list[JobId], list[Fence]]:
    return [claim.job_id for claim in claims], [claim.fence for claim in claims]


def _claim(row: asyncpg.Record) -> Claim:
    return Claim._make(_COLUMNS(row))
