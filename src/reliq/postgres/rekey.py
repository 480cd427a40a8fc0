"""Seal stored payloads with the newest key, in bounded batches, while workers run."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
import asyncpg

from reliq.errors import KeyUnknown
from reliq.postgres.failures import translated
from reliq.postgres.queries import query
from reliq.sealing import Sealing

BATCH: Final = 1_000
"""Jobs of one statement."""

PASSES_MAX: Final = 20
"""Passes in a row that change nothing, a tenth of a second apart, before what is held is left."""

PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rekeyed:
    """
    What came of it: payloads sealed anew, and what is left.

    `left` are those that can be, and were only counted, or that somebody held all the time;
    `lost` those that cannot, by why.
    """

    sealed: int
    left: int
    lost: Mapping[str, int]


async def rekey(pool: asyncpg.Pool, sealing: Sealing, *, only_count: bool = False) -> Rekeyed:
    """
    Seal anew until a whole pass finds nothing more to do.

    One pass is not enough: a copy of a dead letter, made while it ran, may be a job that the pass did
    not see. Such a copy holds its letter's row until it is committed, so that a later pass does.
    """
    sealed = idle = 0
    while True:
        found, written, lost = await _pass(pool, sealing, only_count=only_count)
        sealed += written
        idle = 0 if written else idle + 1
        if only_count or not found or idle == PASSES_MAX:
            return Rekeyed(sealed=sealed, left=found, lost=lost)
        if not written:
            await anyio.sleep(PAUSE_S)


async def _pass(
    pool: asyncpg.Pool, sealing: Sealing, *, only_count: bool
) -> tuple[int, int, Counter[str]]:
    """Look at every payload once: how many are outdated, were written, and cannot be opened."""
    found, written, lost = 0, 0, Counter[str]()
    for families in (False, True):
        after = 0
        while rows := await _fetch(pool, "find_outdated", after, sealing.outdated, BATCH, families):
            after = rows[-1]["id"]
            new = _resealed((row for row in rows if row["outdated"]), sealing, lost)
            found += len(new)
            if new and not only_count:
                read, payloads = zip(*new.values(), strict=True)
                [row] = await _fetch(pool, "rekey_payloads", list(new), read, payloads, families)
                written += row["rekeyed"]
    return found, written, lost


def _resealed(
    rows: Iterable[Any], sealing: Sealing, lost: Counter[str]
) -> dict[int, tuple[str, str]]:
    """Return what is to be written, by id: the payload that was read, and the new one."""
    new: dict[int, tuple[str, str]] = {}
    for row in rows:
        try:
            payload = sealing.reseal(row["payload"])
        except (KeyUnknown, ValueError) as error:
            lost[str(error)] += 1
            continue
        if json.loads(payload) != json.loads(row["payload"]):  # the pattern finds too much
            new[row["id"]] = row["payload"], payload
    return new


async def _fetch(pool: asyncpg.Pool, name: str, *arguments: object) -> list[asyncpg.Record]:
    with translated():
        return await pool.fetch(query(name).text, *arguments)
