"""What the write-ahead log says, told in the words of the history."""

import pytest

from reliq.scenario.stage.committed import entries_of
from reliq.scenario.stage.decoding import Change, Transaction, Who

ROW = {"id": 3, "kind": "drill.call", "fence": 1, "state": "succeeded", "run_at": 5, "key": "k"}


def told(old: dict[str, object], new: dict[str, object]) -> list[tuple[str, object]]:
    who = Who("operator-1", "requeue_job", "jobs", "update", 1, 7)
    update = Change("jobs", "update", old, new)
    entries = entries_of(Transaction(xid=9, at=8, parts=[update, who]), 1)
    return [(entry.e, entry.a.get("columns")) for entry in entries]


@pytest.mark.parametrize("state", ["running", "succeeded"])
def test_an_update_that_changes_nothing_is_told_by_its_statement_alone(state):
    row = {**ROW, "state": state}

    assert told(row, dict(row)) == [("statement", None)]


def test_a_null_that_stays_null_is_no_change():
    assert told(ROW, {**ROW, "last_error": None}) == [("statement", None)]


def test_a_new_fence_on_a_running_job_is_a_claim():
    names = ("attempt", "attempts_max", "worker")
    old = {**ROW, "state": "running", **dict.fromkeys(names, 1)}

    assert told(old, {**old, "fence": 2}) == [("claim", None), ("statement", None)]


def test_what_no_other_word_fits_is_a_write_of_its_columns():
    new = {**ROW, "state": "queued", "run_at": 6, "worker": None}

    assert told(ROW, new) == [("write", ["run_at", "state"]), ("statement", None)]


HELD = {"key": "k", "job_id": 3, "fence": 1, "done_at": None, "result": None}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (None, HELD, "effect-reserved"),
        (HELD, {**HELD, "fence": 2}, "effect-reserved"),
        (HELD, {**HELD, "job_id": 4}, "effect-reserved"),
        (HELD, {**HELD, "done_at": 5, "result": "{}"}, "effect-done"),
        ({**HELD, "done_at": 5}, {**HELD, "done_at": 5}, None),
        ({**HELD, "done_at": 5}, None, None),
        (HELD, None, "effect-released"),
    ],
)
def test_the_ledger_of_effects_is_told_by_who_begins_and_who_ends(old, new, said):
    op = "insert" if old is None else "delete" if new is None else "update"
    entries = entries_of(Transaction(9, 8, [Change("effect_keys", op, old, new)]), 1)

    assert [entry.e for entry in entries] == ([said] if said else [])
    for entry in entries:
        row = new or old
        assert (entry.a["key"], entry.a["job"], entry.a["fence"]) == (
            "k", row["job_id"], row["fence"]
        )  # fmt: skip
        if said == "effect-reserved":
            assert (entry.a["was_job"], entry.a["was_fence"]) == (
                (None, None) if old is None else (3, 1)
            )


@pytest.mark.parametrize(
    ("table", "old", "new", "said"),
    [
        ("reports", None, {"state": "running", "rows": None}, ["report"]),
        ("reports", {"state": "running"}, {"state": "ready", "rows": 7}, ["report"]),
        ("reports", {"state": "ready"}, {"state": "ready", "file": "x"}, []),
        ("reports", {"state": "ready"}, None, []),
        ("report_parts", None, {"rows": 7}, ["part"]),
        ("report_parts", {"rows": 7}, {"rows": 14}, ["part"]),
        ("report_parts", {"rows": 7}, None, []),
    ],
)
def test_reports_are_told_by_their_states_and_by_what_is_written(table, old, new, said):
    op = "insert" if old is None else "delete" if new is None else "update"
    row = {"id": 1, "report_id": 1, "chunks": 2, "chunk": 1, "part": 1}
    change = Change(table, op, old and row | old, new and row | new)

    entries = entries_of(Transaction(9, 8, [change]), 1)

    assert [entry.e for entry in entries] == said
    for entry in entries:
        assert (entry.a["report"], entry.a["rows"]) == (1, new["rows"])
