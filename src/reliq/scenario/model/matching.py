"""Patterns: which entries of a history a file means."""

import difflib
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

Source = Literal["wal", "process", "upstream", "mail", "driver", "fault", "canary"]

_SPOKEN: Final[Mapping[Source, Mapping[str, str | None]]] = yaml.safe_load(
    (files("reliq.scenario.model") / "words.yml").read_text(encoding="utf-8")
)
WORDS: Final[Mapping[Source, tuple[str, ...]]] = {src: tuple(e) for src, e in _SPOKEN.items()}
"""What each witness speaks of; a pattern with another word would never fit anything."""

_ALWAYS: Final[Mapping[Source, str]] = {"wal": "xid stmt db"}
COMPARISON: Final = re.compile(r"(>=|<=|>|<)\s*(-?\d+(?:\.\d+)?)")


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
        for problem in self._wrong():
            raise ValueError(problem)
        return self

    def _wrong(self) -> Iterator[str]:
        """Say which fields or values can never fit: under `never` they would hold for ever."""
        own = _SPOKEN[self.src][self.e]
        known = ["p", *_ALWAYS.get(self.src, "").split(), *(own or "").split()]
        for name, wanted in self.fields.items():
            if own is not None and name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
                yield f"{self.src} {self.e} has no {name!r}: {hint}"
            compares = isinstance(wanted, str) and re.match(r"[<>=]", wanted)
            if compares and not COMPARISON.fullmatch(wanted):
                yield f"{name}: {wanted!r} compares nothing: write '>=2', '<2', '>2' or '<=2'"

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
