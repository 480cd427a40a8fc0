"""The table of attempts is append-only: what happened is never written over."""

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "reliq"
TEXTS = [
    path
    for pattern in ("**/*.sql", "**/*.py")
    for path in sorted(SOURCE.glob(pattern))
    if "reliq.attempts" in path.read_text() and "scenario" not in path.parts
]
TRIAGE = "set ignored_at = reliq.now(), ignored_by = $2, ignore_reason = $3\n"
"""What a person decides about a dead letter is noted beside the death, once; nothing else is."""

CHANGES = re.compile(
    r"(update|delete\s+from|truncate|merge\s+into)\s+(table\s+|only\s+)*reliq\.attempts",
    re.IGNORECASE,
)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_no_statement_changes_an_attempt(path: Path) -> None:
    text = path.read_text()
    changes = [text[found.end() :].lstrip() for found in CHANGES.finditer(text)]

    assert [change for change in changes if not change.startswith(TRIAGE)] == []


def test_only_one_statement_notes_what_a_person_decided_and_only_once() -> None:
    noting = {path.stem: path.read_text() for path in TEXTS if CHANGES.search(path.read_text())}

    assert list(noting) == ["ignore_jobs"]
    assert "and ignored_at is null\n" in noting["ignore_jobs"]


def test_the_writers_of_attempts_are_those_that_end_one() -> None:
    writers = {path.stem for path in TEXTS if "insert into reliq.attempts" in path.read_text()}

    assert {"settle_queued", "settle_dead", "reap_jobs", "hand_back_unheard"} == writers


def test_a_row_of_attempts_goes_only_with_its_job() -> None:
    [made] = re.findall(
        r"create table reliq\.attempts \((.+?)\n\);",
        (SOURCE / "postgres/migrations/0001_first_tables.sql").read_text(), re.DOTALL,
    )  # fmt: skip

    assert "references reliq.jobs (id) on delete cascade" in made
