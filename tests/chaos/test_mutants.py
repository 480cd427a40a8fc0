"""
A harness that has never objected proves nothing: each mutant must be found out.

All of them are run by `reliq scenario mutants`; here it is seen that every patch still fits, and
that the way from a patch to a verdict works, with one of them.
"""

from pathlib import Path

import anyio
import pytest

from reliq.errors import ScenarioInvalid
from reliq.scenario.mutants import Kill, Mutant, kill_all, load_mutants, matrix, patched

ROOT = Path(__file__).parents[2]
MUTANTS = load_mutants(Path(__file__).with_name("mutants"), ROOT / "scenarios")


@pytest.mark.anyio
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_a_patch_fits_and_breaks_what_the_processes_run(mutant):
    async with patched(mutant) as code:
        changed = [
            file
            for file in (code / "reliq").rglob("*")
            if file.suffix in {".py", ".sql"} and file.read_bytes() != _installed(file, code)
        ]

    assert changed
    assert mutant.objects in dict(mutant.scenario.expect.promises()) or mutant.objects.startswith(
        "never: "
    )


def _installed(file: Path, code: Path) -> bytes:
    installed = ROOT / "src" / file.relative_to(code)
    return installed.read_bytes() if installed.exists() else b""


@pytest.mark.chaos
def test_a_mutant_is_found_out():
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == "settle-without-fence"]
    kills: list[Kill] = []

    anyio.run(lambda: kill_all([mutant], provider="embedded", image="", seeds=1, tell=kills.append))

    assert [kill.is_killed for kill in kills] == [True], kills[0].line()
    assert "| `settle-without-fence` |" in matrix(kills)


def test_a_patch_that_no_longer_fits_is_an_error(tmp_path):
    patch = tmp_path / "old.patch"
    patch.write_text("--- a/reliq/nothing.py\n+++ b/reliq/nothing.py\n@@ -1 +1 @@\n-a\n+b\n")
    mutant = Mutant(
        name="old", patch=patch, breaks="", scenario=MUTANTS[0].scenario, objects="",
    )  # fmt: skip

    async def apply() -> None:
        async with patched(mutant):
            pass

    with pytest.raises(ScenarioInvalid, match="the patch no longer fits"):
        anyio.run(apply)


@pytest.mark.parametrize("line", ["Breaks", "Scenario", "Objects"])
def test_a_patch_must_say_what_it_is_about(line, tmp_path):
    text = (MUTANTS[0].patch).read_text()
    (tmp_path / "a.patch").write_text(text.replace(f"{line}:", "Something:"))

    with pytest.raises(ScenarioInvalid, match=f"`{line}: …` is missing"):
        load_mutants(tmp_path, ROOT / "scenarios")
