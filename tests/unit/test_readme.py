"""What the README shows can be copied: its App loads, its commands exist."""

import re
from pathlib import Path
from typing import Any

from reliq import App
from reliq.cli import COMMANDS

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_example_is_an_app_that_loads():
    [example] = [
        code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "app =" in code
    ]
    module: dict[str, Any] = {}

    exec(example, module)  # noqa: S102 - our own README

    assert isinstance(module["app"], App)
    assert set(module["app"].handlers) == {"order.paid", "sales.count", "alert"}


def test_every_command_it_names_exists():
    named = set(re.findall(r"`?reliq ([a-z]+)", README)) - {
        "is",
        "from",
        "running",
        "into",
        "on",
        "import",
    }
    assert {name for name in named if name not in COMMANDS} == set()
