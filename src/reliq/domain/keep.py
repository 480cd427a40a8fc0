"""How long what has come to an end is kept: by how it ended, and for kinds that differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Final

from reliq.domain.duration import LONGEST

STATES: Final = ("succeeded", "cancelled", "dead", "ignored")
"""How a job can have ended; `ignored` is dead, and somebody has looked at it and left it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """
    How long jobs are kept after their end; None leaves it to the settings.

    `dead` are dead letters that wait for a person, `ignored` those that somebody left.
    """

    succeeded: timedelta | None = None
    cancelled: timedelta | None = None
    dead: timedelta | None = None
    ignored: timedelta | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            age: object = getattr(self, field.name)
            if age is None:
                continue
            if not isinstance(age, timedelta) or not timedelta(0) < age <= LONGEST:
                raise ValueError(
                    f"Keep({field.name}=…) takes a timedelta above 0 and up to {LONGEST.days} days, "
                    f"not {age!r}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeps:
    """
    All keeps of one App: what the settings say, what kinds say instead, and that of bodies.

    Bodies of events that nobody could read are kept as `dead`, or as `ignored`.
    """

    usual: Keep
    bodies: timedelta
    effects: timedelta
    kinds: Mapping[str, Keep]

    def of_jobs(self) -> Sequence[list[str] | list[timedelta]]:
        """Return kinds, the first one standing for all others, and how long for each state."""
        ages = [[self._age(keep, state) for keep in (self.usual, *self.kinds.values())]
                for state in STATES]  # fmt: skip
        return (["", *self.kinds], *ages)

    def of_families(self) -> timedelta:
        """Return how long finished families are kept."""
        return self._age(self.usual, "succeeded")

    def of_dead_letters(self) -> timedelta:
        """Return how long a dead letter of any kind may be kept."""
        return max(self._age(keep, "dead") for keep in (self.usual, *self.kinds.values()))

    def of_bodies(self) -> Sequence[timedelta]:
        """Return how long bodies are kept: those that were read, and those that were not."""
        usual = self.usual
        return self.bodies, self._age(usual, "dead"), self._age(usual, "ignored")

    def _age(self, keep: Keep, state: str) -> timedelta:
        age: timedelta = getattr(keep, state) or getattr(self.usual, state)
        return age
