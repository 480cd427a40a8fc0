"""Patterns: which entries of a history a file means."""

import difflib
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Source = Literal["wal", "process", "upstream", "driver", "fault", "canary"]

WORDS: Final[Mapping[Source, tuple[str, ...]]] = {
    "wal": (
        "event", "job", "claim", "renew", "succeeded", "failed", "again", "release",
        "lease-lost", "dead", "write", "gone", "effect", "slot", "statement",
    ),
    "process": (
        "started", "ready", "exited", "drill.started", "drill.ended", "drill.point",
        "worker.draining", "worker.stopped", "worker.grace_over", "attempt.ended", "lease.lost",
        "leases.not_renewed", "jobs.handed_back", "job.reaped", "job.buried", "settle.delayed",
        "settle.refused", "suspect.isolated", "database.away", "database.back", "wakeup.lost",
        "kinds.unknown", "slot.enqueued", "delivery.accepted", "delivery.duplicate", "delivery.refused",
        "delivery.not_stored",
    ),
    "upstream": ("request", "response"),
    "driver": ("delivery", "enqueued", "requeued", "dead-listed"),
    "fault": ("fired", "healed"),
    "canary": ("late",),
}  # fmt: skip
"""What each witness speaks of; a pattern with another word would never fit anything."""


class Pattern(BaseModel):
    """Entries of the history: by source, name and process, and by any field of theirs."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    src: Source
    e: str

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.e not in (words := WORDS[self.src]):
            near = difflib.get_close_matches(self.e, words, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it tells of {', '.join(words)}"
            raise ValueError(f"{self.src} tells of no {self.e!r}: {hint}")
        return self

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields that must fit: a value, a list of values, or `">=1"`."""
        return self.model_extra or {}


class Quantity(Pattern):
    """How many fit; with `distinct`, how many different values of that field (or of `p`)."""

    distinct: str | None = None


class Trigger(Pattern):
    """The `nth` entry that fits."""

    nth: int = Field(default=1, ge=1)
