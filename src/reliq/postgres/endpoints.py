"""Endpoints of outgoing webhooks: what a delivery needs of them, and what an operator does with them."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import asyncpg

from reliq.domain.endpoint import FAILING_FOR, FAILURES_MIN, Endpoint, check_name, queue_of
from reliq.domain.job import JobId
from reliq.errors import ConfigInvalid, KeyUnknown, RequestRefused, TemporaryError
from reliq.ports import Held
from reliq.postgres.failures import translated
from reliq.postgres.queries import query
from reliq.postgres.rekey import Rekeyed
from reliq.sealing import Sealing

FIELD: Final = "secrets"
"""The field of the stored JSON that is sealed."""

RUNNING: Final = 4
OPENS_AFTER: Final = 5
OPEN_FOR: Final = timedelta(minutes=1)
"""Limits of a new endpoint's queue: a slow one holds up few places, one that is away is left alone."""

Row = dict[str, Any]


def sealing_of(keys: str) -> Sealing:
    """Say how secrets of endpoints are sealed, with keys as RELIQ_ENCRYPTION_KEYS has them."""
    return Sealing(keys, frozenset({FIELD}))


@dataclass(frozen=True, slots=True)
class PostgresEndpoints:
    """
    Fits `ports.Endpoints`, and is the operator's side of the same table.

    Without `sealing` nothing that was sealed can be read, and nothing is written in clear. `alerts`
    says whether an endpoint that gets disabled makes a job of kind `alert`.
    """

    pool: asyncpg.Pool
    sealing: Sealing | None
    alerts: bool = False

    async def find(self, name: str, job_id: JobId) -> Endpoint | None:
        """
        Say where a job's endpoint is and how to sign now; None where there is none of that name.

        Raises:
            TemporaryError: its secrets cannot be opened here: another worker may have the key.

        """
        rows = await self._fetch("find_endpoint", name, job_id)
        if not rows:
            return None
        [row] = rows
        return Endpoint(
            name=row["name"], url=row["url"], disabled_why=row["disabled_why"],
            secrets=self._secrets(row)[: 2 if row["rotating"] else 1],
            now=row["now"], enqueued_at=row["enqueued_at"],
        )  # fmt: skip

    async def delivered(self, endpoint: Endpoint, held: Held) -> None:
        """Write down that an endpoint answered well, unless the job is no longer ours."""
        await self._fetch("note_delivered", endpoint.name, *held, endpoint.url)

    async def undelivered(self, endpoint: Endpoint, held: Held, *, gone: str | None) -> str | None:
        """
        Write down a failed attempt, unless the job is no longer ours; say why if it disabled the endpoint.

        One that is `gone` is disabled at once, others after five days of failures. What another
        address answered, that the name had before, says nothing of this one.
        """
        patience = (FAILING_FOR, FAILURES_MIN)
        rows = await self._fetch(
            "note_undelivered", endpoint.name, *held, gone, *patience, self.alerts, endpoint.url
        )
        return rows[0]["disabled_why"] if rows else None

    async def add(self, name: str, url: str, secret: str) -> None:
        """
        Add an endpoint, with limits of its queue unless it has some.

        Raises:
            ValueError: the name can be no endpoint's.
            RequestRefused: there is one of that name.
            ConfigInvalid: there are no keys to seal its secret with.

        """
        limits = (queue_of(check_name(name)), RUNNING, OPENS_AFTER, OPEN_FOR)
        if not await self._fetch("add_endpoint", name, url, _sealed(self._keys, [secret]), *limits):
            raise RequestRefused(
                f"there is an endpoint {name!r} already: `reliq endpoint list` shows it, "
                f"`reliq endpoint remove {name}` removes it"
            )

    async def show(self) -> list[Row]:
        """List them; without their secrets."""
        rows = await self._fetch("list_endpoints", None)
        return [{key: row[key] for key in row if key != "sealed"} for row in rows]

    async def rotate(self, name: str, secret: str, *, force: bool) -> None:
        """
        Sign with another secret from now on, and for a day with the one before as well.

        Raises:
            RequestRefused: there is none of that name, or it was rotated less than a day ago and
                would forget a secret that still signs.
            ConfigInvalid: there are no keys to seal it with.

        """
        keys = self._keys
        rows = await self._fetch("list_endpoints", name)
        if not rows:
            raise unknown(name)
        [row] = rows
        if row["rotating"] and not force:
            raise RequestRefused(
                f"the secret of {name!r} was changed less than a day ago, at {row['rotated_at']:%Y-%m-%d %H:%M} UTC, "
                "and the one before still signs: wait, or drop that one at once with --force"
            )
        sealed = _sealed(keys, [secret, self._secrets(row)[0]])
        if not await self._seal(row, sealed, rotated=True):
            raise RequestRefused(f"somebody else changed the secret of {name!r} at this moment")

    async def switch(self, name: str, why: str | None) -> None:
        """
        Disable it for a reason, or, without one, enable it and forget its failures.

        Raises:
            RequestRefused: there is none of that name.

        """
        if not await self._fetch("switch_endpoint", name, why):
            raise unknown(name)

    async def remove(self, name: str) -> None:
        """
        Forget it, its secrets and its limits; its jobs die when they come to run.

        Raises:
            RequestRefused: there is none of that name.

        """
        if not await self._fetch("remove_endpoint", name, queue_of(name)):
            raise unknown(name)

    async def rekey(self, *, only_count: bool) -> Rekeyed:
        """Seal all secrets with the newest key; one that somebody changes at this moment is left."""
        done, left, lost = 0, 0, Counter[str]()
        for row in await self._fetch("list_endpoints", None):
            try:
                sealed = self._keys.reseal(row["sealed"])
            except KeyUnknown as error:
                lost[str(error)] += 1
                continue
            if json.loads(sealed) == json.loads(row["sealed"]):
                continue
            written = not only_count and await self._seal(row, sealed, rotated=False)
            done, left = done + written, left + (not written)
        return Rekeyed(sealed=done, left=left, lost=lost)

    @property
    def _keys(self) -> Sealing:
        if self.sealing is None:
            missing = (
                "RELIQ_ENCRYPTION_KEYS is missing: secrets of endpoints are stored sealed, or not"
            )
            page = "see `Secrets, encrypted in the tables` in docs/queue.md"
            raise ConfigInvalid([f"{missing} at all; {page}"])
        return self.sealing

    async def _seal(self, row: Row, sealed: str, *, rotated: bool) -> bool:
        return bool(await self._fetch("seal_endpoint", row["name"], row["sealed"], sealed, rotated))

    def _secrets(self, row: Row) -> tuple[str, ...]:
        sealed = row["sealed"]
        try:
            opened = sealed if self.sealing is None else self.sealing.open(sealed)
        except KeyUnknown as error:
            raise TemporaryError(f"of the endpoint {row['name']} {error}") from None
        secrets = json.loads(opened)[FIELD]
        if not isinstance(secrets, list):
            raise TemporaryError(
                f"the secrets of the endpoint {row['name']} are sealed, and there are no keys here: set "
                "RELIQ_ENCRYPTION_KEYS of the workers"
            )
        return tuple(secrets)

    async def _fetch(self, name: str, *arguments: object) -> list[Row]:
        with translated():
            rows = await self.pool.fetch(query(name).text, *arguments)
        return [dict(row) for row in rows]


def _sealed(keys: Sealing, secrets: Sequence[str]) -> str:
    return keys.seal(json.dumps({FIELD: secrets}))


def unknown(name: str) -> RequestRefused:
    """Say that there is none of that name."""
    return RequestRefused(f"there is no endpoint {name!r}: `reliq endpoint list` lists them")
