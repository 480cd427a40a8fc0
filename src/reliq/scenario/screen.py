"""What a person, a log or a program sees of runs."""

import json
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.status import Status
from typing_extensions import override

from reliq.scenario.report import as_json, details, headline
from reliq.scenario.run import Result
from reliq.scenario.series import Item

_COLOURS: Final = {"pass": "green", "violated": "bold red", "vacuous": "yellow", "void": "magenta"}


@dataclass
class Lines:
    """Plain lines, for a log."""

    console: Console

    def tell(self, item: Item, text: str) -> None:
        """Say it in a line."""
        self.console.print(f"{item.scenario.id}: {text}", markup=False)

    def show(self, _: Item, result: Result, repeat: str) -> None:
        """Show the verdict and what it rests on."""
        colour = _COLOURS[result.judgement.verdict]
        self.console.print(headline(result), style=colour, markup=False)
        for line in details(result, repeat=repeat):
            self.console.print(line, markup=False)


@dataclass
class Live(Lines):
    """A line that changes for what goes on, above it what is over."""

    _status: Status | None = None
    _now: dict[tuple[str, int], str] = field(default_factory=dict)

    @override
    def tell(self, item: Item, text: str) -> None:
        """Say it in the line that changes."""
        self._now[item.scenario.id, item.seed] = text
        if self._status is None:
            self._status = self.console.status("")
            self._status.start()
        said = [f"{name}: {what}" for (name, _), what in self._now.items()]
        self._status.update(" | ".join(said))

    @override
    def show(self, item: Item, result: Result, repeat: str) -> None:
        """Show the verdict and what it rests on."""
        self._now.pop((item.scenario.id, item.seed), None)
        if self._status is not None and not self._now:
            self._status.stop()
            self._status = None
        super().show(item, result, repeat)


class JsonLines:
    """One JSON object a run, for programs."""

    def tell(self, item: Item, text: str) -> None:
        """Say nothing."""

    def show(self, _: Item, result: Result, repeat: str) -> None:
        """Write the verdict and what it rests on."""
        print(json.dumps(as_json(result, repeat=repeat)), flush=True)  # noqa: T201
