"""What keeps the house in order: sizes, names, and lists that must agree with the code."""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliq.logs import EVENTS
from reliq.postgres.queries import names

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "reliq"
MODULES = sorted(SOURCE.rglob("*.py"))
TEXTS = sorted(
    path
    for pattern in ("src/**/*.py", "src/**/*.sql", "tests/**/*.py", "scenarios/**/*.yml",
                    "docs/**/*.md", "*.md", "*.toml", "Makefile", "Dockerfile", "*.yml",
                    ".env.example", ".ci/*", ".github/**/*.yml")
    for path in ROOT.glob(pattern)
    if path.is_file() and path != Path(__file__)
)  # fmt: skip

COMMANDS_OF = {"scenario.py": "scenario", "dev.py": "demo"}
CORE = {
    "domain", "ports.py", "job.py", "app.py", "settings.py", "logs.py", "postgres", "receiver", "worker",
    "wiring", "cli", "enqueue_with", "sealing.py",
}  # fmt: skip
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
LINES_MAX = {
    "core": 7_800, "sql": 2_000, "scenario": 4_800, "invariants": 2_600, "proxy": 700, "timeline": 700,
}  # fmt: skip
"""Of code; `invariants`, `proxy` and `timeline` are parts of the harness, see ADR 12, 17 and 18."""

NAMES_BANNED = {
    "base", "common", "constants", "core", "helper", "helpers", "lib", "main", "manager", "misc",
    "shared", "stuff", "tools", "types", "util", "utils",
}  # fmt: skip
LEVELS = {"debug", "info", "warning", "error", "exception"}
EVENT = re.compile(r"[a-z]+\.[a-z_]+")

WORDS_BANNED = re.compile(
    r"\b(claude|anthropic|chatgpt|openai|llms?|(?:sub)?agents?|prompts?|the brief|as an ai"
    r"|our session|this session|previous session|todo|xxx|hack)\b",
    re.IGNORECASE,
)
WORDS_ALLOWED = re.compile(r"user-agent", re.IGNORECASE)
"""What holds a banned word and means something else."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code_lines(source: str) -> int:
    """Count lines that hold code: no blank ones, no comments, no docstrings."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
               tokenize.ENCODING, tokenize.ENDMARKER}  # fmt: skip
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in nothing
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docstrings)


def strings(tree: ast.AST) -> set[str]:
    """Return every string constant."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def logged(tree: ast.AST) -> Iterator[str]:
    """Yield the events of calls like `log.info("job.buried", …)`, also of either-or ones."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=level), args=[first, *_]) if level in LEVELS:
                yield from (text for text in strings(first) if EVENT.fullmatch(text))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_short_and_so_are_its_functions(path):
    source = path.read_text()
    functions = [
        (node.name, (node.end_lineno or 0) - node.lineno + 1)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    assert len(source.splitlines()) <= MODULE_LINES_MAX
    assert [(name, n) for name, n in functions if n > FUNCTION_LINES_MAX] == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_named_after_what_is_in_it(path):
    assert path.stem not in NAMES_BANNED
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_the_house_stays_compact(capsys):
    sizes = dict.fromkeys([*LINES_MAX, "other"], 0)
    for path in MODULES:
        room, *inner = path.relative_to(SOURCE).parts
        room = COMMANDS_OF.get(path.name, room)
        if room == "scenario" and inner[0] in LINES_MAX:
            room = inner[0]
        place = "core" if room in CORE else room if room in LINES_MAX else "other"
        sizes[place] += code_lines(path.read_text())
    statements = "\n".join(path.read_text() for path in SOURCE.rglob("*.sql"))
    lines = [line for line in statements.splitlines() if line.strip()]
    sizes["sql"] = sum(not line.lstrip().startswith("--") for line in lines)

    with capsys.disabled():
        sys.stdout.write(f"\nlines of code: {sizes}\n")

    assert [room for room, most in LINES_MAX.items() if sizes[room] > most] == []


def test_every_log_event_is_listed_and_every_listed_one_is_logged():
    trees = [ast.parse(path.read_text()) for path in MODULES if path.name != "logs.py"]

    assert {event for tree in trees for event in logged(tree)} - EVENTS == set()
    assert EVENTS - {text for tree in trees for text in strings(tree)} == set()


def test_every_statement_is_used_by_the_store_and_measured_by_none_but_the_bench():
    used = {
        text
        for path in (SOURCE / "postgres").glob("*.py")
        for text in strings(ast.parse(path.read_text()))
    }
    elsewhere = [
        name_of(path)
        for path in MODULES
        if path.relative_to(SOURCE).parts[0] not in {"postgres", "bench"}
        and "postgres.queries" in path.read_text()
    ]

    assert set(names()) - used == set()
    assert elsewhere == []


def test_no_text_speaks_of_how_it_came_to_be():
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in TEXTS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if WORDS_BANNED.search(WORDS_ALLOWED.sub("", line))
    ]

    assert found == []


SLEEPS = {"time.sleep", "anyio.sleep", "asyncio.sleep"}
PAUSE_MAX_S = 0.05
"""A pause between two looks at a condition, or inside a handler of a test."""


def test_no_test_waits_by_the_clock():
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS and _is_long(node)
    ]

    assert found == []


def _is_long(call: ast.Call) -> bool:
    [seconds] = call.args
    return not isinstance(seconds, ast.Constant) or seconds.value > PAUSE_MAX_S
