"""What the README and the pages show can be copied: Apps load, commands and imports exist."""

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from reliq import App
from reliq.cli import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLES = [
    pytest.param(code, id=f"{page}:{n}")
    for page in ("README.md", "docs/queue.md", "docs/automations.md", "scenarios/README.md")
    for n, code in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    )
]


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


@pytest.mark.parametrize("code", EXAMPLES)
def test_every_example_is_python_and_what_it_imports_exists(code: str):
    compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("reliq"):
            module = import_module(str(node.module))
            for name in node.names:
                if not hasattr(module, name.name):
                    import_module(f"{node.module}.{name.name}")
