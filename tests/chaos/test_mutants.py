"""
A harness that has never objected proves nothing: each mutant must be found out.

A mutant is a patch of a copy of the package, which the processes run instead. Its first lines
say which scenario must see it and which invariant must object.
"""

import re
import shutil
import subprocess

from reliq.scenario.run import INSTALLED
from tests.chaos.conftest import SCENARIOS, told


def test_a_mutant_is_found_out(mutant, play, tmp_path):
    text = mutant.read_text()
    [scenario] = re.findall(r"^Scenario: (\S+)$", text, re.MULTILINE)
    [objects] = re.findall(r"^Objects: (.+)$", text, re.MULTILINE)
    code = tmp_path / "code"
    shutil.copytree(
        INSTALLED / "reliq", code / "reliq", ignore=shutil.ignore_patterns("__pycache__")
    )
    applied = subprocess.run(
        ["patch", "--strip=1", "--fuzz=0", "--batch", "--directory", code, "--input", mutant],  # noqa: S607
        check=False, capture_output=True, text=True, timeout=10,
    )  # fmt: skip
    assert applied.returncode == 0, f"the patch no longer fits:\n{applied.stdout}"

    result = play(SCENARIOS / f"{scenario}.yml", code=code, runs=tmp_path / "runs")

    broken = {one.name for one in result.judgement.findings if one.violations}
    assert result.judgement.verdict == "violated", told(result, SCENARIOS / f"{scenario}.yml")
    assert objects in broken
