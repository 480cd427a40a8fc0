"""The promises to judge, what must have happened, what must not."""

from typing import Any, NamedTuple, Self

from pydantic import Field, model_validator

from reliq.scenario.model.matching import Pattern, Quantity
from reliq.scenario.model.times import Strict


class Always(NamedTuple):
    """An invariant and its parameters."""

    name: str
    parameters: dict[str, Any]


class Never(Strict):
    """What must not be in the history."""

    what: str
    count: Pattern


class Sometimes(Strict):
    """
    What must be in the history, or the run has not tested what it is for.

    `count` counts entries. `max_overlap` is the largest number that were open at one moment,
    of entries that begin and end (requests, deliveries, requeues).
    """

    what: str
    count: Quantity | None = None
    max_overlap: Quantity | None = None
    at_least: int | None = Field(default=None, ge=1)
    at_most: int | None = Field(default=None, ge=0)
    exactly: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if (self.count is None) == (self.max_overlap is None):
            raise ValueError("say what: count or max_overlap")
        if self.at_least is self.at_most is self.exactly is None:
            raise ValueError("say how often: at_least, at_most or exactly")
        return self

    @property
    def bounds(self) -> str:
        """Say in words how often it is wanted."""
        words = {"at least": self.at_least, "at most": self.at_most, "exactly": self.exactly}
        return ", ".join(f"{word} {n}" for word, n in words.items() if n is not None)

    def is_met(self, count: int) -> bool:
        """Compare a count with what is wanted."""
        return (
            (self.at_least is None or count >= self.at_least)
            and (self.at_most is None or count <= self.at_most)
            and (self.exactly is None or count == self.exactly)
        )


class Expect(Strict):
    """The promises to judge, what must have happened, what must not."""

    always: list[str | dict[str, dict[str, Any]]] = Field(min_length=1)
    sometimes: list[Sometimes] = Field(min_length=1)
    never: list[Never] = []

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        for item in self.always:
            if isinstance(item, dict) and len(item) != 1:
                raise ValueError("an invariant with parameters is written `name: {parameter: 1}`")
        return self

    def promises(self) -> list[Always]:
        """List the invariants with their parameters, in the order of the file."""
        return [
            Always(item, {}) if isinstance(item, str) else Always(*next(iter(item.items())))
            for item in self.always
        ]
