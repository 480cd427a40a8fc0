"""What docs/queue.md shows is run: each section is one program, against a database of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "queue.md").read_text(encoding="utf-8")


def programs() -> dict[str, str]:
    sections = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)[1:]
    code = {
        title: "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
        for title, text in zip(sections[::2], sections[1::2], strict=True)
    }
    return {title: text for title, text in code.items() if text}


@pytest.mark.parametrize("title", programs())
def test_a_section_of_the_page_is_a_program_that_runs(title, dsn):
    program = subprocess.run(
        [sys.executable, "-c", programs()[title]],
        env={"RELIQ_DATABASE_URL": dsn},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert program.returncode == 0, program.stderr
