"""What `test_decoding` writes, as the harness reads it: every sort of line and of value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq.errors import HarnessError
from reliq.scenario.stage.committed import entries_of
from reliq.scenario.stage.decoding import Change, Transaction, Who, microseconds, transactions

AT = "2026-11-29 20:10:11.12+00"
JOB = {
    "id[bigint]": "7", "kind[text]": "'job'", "key[text]": "'k'", "fence[bigint]": "1",
    "attempt[integer]": "1", "attempts_max[integer]": "8", "worker[text]": "'w'",
    "run_at[timestamp with time zone]": f"'{AT}'", "state[text]": "'running'",
}  # fmt: skip


def row(**changed: str) -> str:
    """Write a row as test_decoding does; the names here are without their types."""
    columns = {name: changed.get(name.partition("[")[0], value) for name, value in JOB.items()}
    return " ".join(f"{name}:{value}" for name, value in columns.items())


def read(*lines: str) -> list[Transaction]:
    return list(
        transactions([(5, "BEGIN 5"), *((5, x) for x in lines), (5, f"COMMIT 5 (at {AT})")])
    )


def changed(rest: str, table: str = "reliq.jobs", op: str = "INSERT") -> Change:
    [transaction] = read(f"table {table}: {op}: {rest}")
    [change] = transaction.parts
    assert isinstance(change, Change)
    return change


def message(**said: object) -> str:
    who = {
        "p": "worker-1",
        "stmt": "claim_jobs",
        "table": "jobs",
        "op": "update",
        "rows": 1,
        "db": 3,
    }
    text = json.dumps(who | said)
    return f"message: transactional: 1 prefix: who, sz: {len(text)} content:{text}"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Lines ----------------------------------------------------------------------------------------


def test_transactions_come_in_the_order_of_their_commits_with_their_moment():
    lines = [
        (8, "BEGIN 8"), (8, "table reliq.events: DELETE: id[bigint]:1"), (8, f"COMMIT 8 (at {AT})"),
        (6, "BEGIN 6"), (6, "table reliq.events: DELETE: id[bigint]:2"), (6, f"COMMIT 6 (at {AT})"),
    ]  # fmt: skip

    assert [(x.xid, x.at) for x in transactions(lines)] == [
        (8, microseconds(AT)),
        (6, microseconds(AT)),
    ]


def test_bookkeeping_leaves_nothing():
    assert (
        read(
            "table reliq.job_keys: INSERT: key[text]:'k'", "table reliq.jobs: TRUNCATE: (no-flags)"
        )
        == []
    )


def test_messages_of_others_are_passed_over():
    assert read("message: transactional: 1 prefix: theirs, sz: 2 content:hi") == []


def test_a_line_that_is_not_understood_is_refused():
    with pytest.raises(HarnessError, match="not understood: whatever"):
        read("whatever")


def test_a_message_names_process_and_statement_and_a_nameless_one_is_empty():
    [transaction] = read(message(), message(p=None, stmt=""))

    assert transaction.parts == [
        Who("worker-1", "claim_jobs", "jobs", "update", 1, 3),
        Who("", "", "jobs", "update", 1, 3),
    ]


@pytest.mark.parametrize(
    ("text", "is_at"),
    [
        ("1970-01-01 00:00:00+00", 0),
        ("1970-01-01 00:00:00.000001+00", 1),
        ("1970-01-01 01:00:00.5+01", 500_000),
    ],
)
def test_moments_are_whole_microseconds(text, is_at):
    assert microseconds(text) == is_at


# Values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("a[bigint]:-3", -3),
        ("a[smallint]:0", 0),
        ("a[boolean]:true", True),
        ("a[boolean]:false", False),
        ("a[text]:null", None),
        ("a[text]:'null'", "null"),
        ("a[text]:''", ""),
        ("a[text]:'it''s'", "it's"),
        ("a[text]:''''", "'"),
        ("a[text]:'one\ntwo'", "one\ntwo"),
        ("a[text]:'x[text]:''y'' z'", "x[text]:'y' z"),
        ("a[text[]]:'{p,q}'", "{p,q}"),
        ('"user"[text]:\'x\'', "x"),
        ("a[character varying]:'x'", "x"),
        ("a[bytea]:'\\x00ff'", "\\x00ff"),
        ("a[numeric]:1.5", "1.5"),
        ("a[timestamp with time zone]:'1970-01-01 00:00:01+00'", 1_000_000),
        ("a[jsonb]:unchanged-toast-datum", "unchanged-toast-datum"),
    ],
)  # fmt: skip
def test_a_value_is_read_by_its_type(column, value):
    new = changed(f"{column} next[bigint]:4").new
    assert new is not None
    assert list(new.values()) == [value, 4]


@given(st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",))))
def test_any_text_comes_through_as_it_was(text):
    change = changed(
        f"old-key: a[text]:{quoted(text)} new-tuple: a[text]:{quoted(text)}", op="UPDATE"
    )

    assert change == Change("jobs", "update", {"a": text}, {"a": text})


def test_a_text_that_looks_like_the_border_of_the_rows_is_none():
    nasty = quoted("it's a new-tuple: id[bigint]:9 and old-key: too")

    change = changed(
        f"old-key: id[bigint]:1 e[text]:{nasty} new-tuple: id[bigint]:2 e[text]:'x'", op="UPDATE"
    )

    assert change.old is not None
    assert change.old["id"] == 1
    assert change.new == {"id": 2, "e": "x"}


def test_a_large_row_is_read_in_no_time():
    large = quoted("it's " * 200_000)

    change = changed(
        f"old-key: p[jsonb]:{large} new-tuple: p[jsonb]:{large} n[bigint]:1", op="UPDATE"
    )

    assert change.new is not None
    assert change.new["n"] == 1


# Entries --------------------------------------------------------------------------------------


def entries(*lines: str) -> list:
    [transaction] = read(*lines)
    return entries_of(transaction, 0)


def update(old: str, new: str) -> str:
    return f"table reliq.jobs: UPDATE: old-key: {old} new-tuple: {new}"


def test_a_change_is_of_the_statement_whose_message_follows():
    found = entries(
        update(row(state="'queued'", fence="0"), row()), message(stmt="claim_jobs"),
        "table drill.effects: INSERT: job_id[bigint]:7 key[text]:'k' attempt[integer]:1",
        message(stmt="", table="effects", op="insert"),
        update(row(), row(state="'succeeded'")), message(stmt="settle_succeeded", p="worker-2"),
    )  # fmt: skip

    assert [(x.e, x.p, x.a["stmt"]) for x in found if x.e != "statement"] == [
        ("claim", "worker-1", "claim_jobs"),
        ("effect", "worker-1", ""),
        ("succeeded", "worker-2", "settle_succeeded"),
    ]


def test_a_change_without_a_message_is_nobodys_and_of_the_moment_of_the_commit():
    [made] = entries(f"table reliq.jobs: INSERT: {row()}")

    assert (made.p, made.a["db"]) == ("", microseconds(AT))


def test_what_no_word_is_made_for_is_a_write_that_names_its_columns():
    [write] = entries(update(row(), row(worker="'x'", key="unchanged-toast-datum")))

    assert (write.e, write.a["columns"]) == ("write", ["worker"])


def test_a_change_of_the_fence_is_no_success():
    [write] = entries(update(row(), row(state="'succeeded'", fence="2")))

    assert (write.e, write.a["columns"]) == ("write", ["fence", "state"])


def test_a_key_that_names_a_slot_is_a_slot():
    made, slot = entries(
        f"table reliq.jobs: INSERT: {row(key=quoted('report@1970-01-01T00:00:01.500000Z'))}"
    )

    assert (made.e, slot.e) == ("job", "slot")
    assert (slot.a["schedule"], slot.a["at"]) == ("report", 1_500_000)


@pytest.mark.parametrize("key", ["report", "report@tomorrow", "a b@1970-01-01T00:00:01Z"])
def test_other_keys_are_none(key):
    assert [x.e for x in entries(f"table reliq.jobs: INSERT: {row(key=quoted(key))}")] == ["job"]
