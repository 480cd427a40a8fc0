"""How events gather while others are being written."""

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import asyncpg
import pytest

from reliq.postgres.groups import WRITERS, Groups, Row

pytestmark = pytest.mark.anyio


async def test_a_group_gathers_while_others_are_written_and_goes_in_the_order_of_its_keys():
    """Two groups that lock the same keys in different orders would wait for each other."""
    written: list[list[Row]] = []
    may_go = anyio.Event()

    async def write(rows: Sequence[Row]) -> list[Row]:
        written.append(list(rows))
        await may_go.wait()
        return list(rows)

    groups, answers = Groups(write), dict[Row, Row | None]()

    async def store(row: Row) -> None:
        answers[row] = await groups.store(row)

    first: list[Row] = [("s", f"first {n}") for n in range(WRITERS)]
    others: list[Row] = [("s", "c"), ("s", None), ("r", "d"), ("s", "a"), ("s", "b")]
    async with anyio.create_task_group() as tasks:
        for row in first:
            tasks.start_soon(store, row)
            await anyio.wait_all_tasks_blocked()
        for row in others:
            tasks.start_soon(store, row)
        await anyio.wait_all_tasks_blocked()
        assert written == [[row] for row in first]
        may_go.set()

    assert written[WRITERS:] == [[("r", "d"), ("s", None), ("s", "a"), ("s", "b"), ("s", "c")]]
    assert all(answer == row for row, answer in answers.items())


async def test_who_is_cut_off_takes_its_group_along_and_nobody_who_comes_later():
    may_go = anyio.Event()

    async def write(rows: Sequence[Row]) -> list[Row]:
        await may_go.wait()
        return list(rows)

    groups, answers, cut_off = Groups(write), list[Row | None](), list[Row]()

    async def store(row: Row, within_s: float = 60) -> None:
        try:
            with anyio.fail_after(within_s):
                answers.append(await groups.store(row))
        except TimeoutError:
            cut_off.append(row)

    first: list[Row] = [("s", f"first {n}") for n in range(WRITERS)]
    async with anyio.create_task_group() as tasks:
        for row in first:
            tasks.start_soon(store, row)
            await anyio.wait_all_tasks_blocked()
        tasks.start_soon(store, ("s", "leads"), 0.01)
        tasks.start_soon(store, ("s", "follows"))
        while len(cut_off) < 2:
            await anyio.lowlevel.checkpoint()
        tasks.start_soon(store, ("s", "later"))
        await anyio.wait_all_tasks_blocked()
        may_go.set()

    assert sorted(cut_off) == [("s", "follows"), ("s", "leads")]
    assert sorted(answers) == [*first, ("s", "later")]


@pytest.mark.parametrize(
    "error", [asyncpg.ConnectionDoesNotExistError, asyncpg.AdminShutdownError, ConnectionResetError]
)
async def test_a_lost_connection_parts_no_group_for_what_it_had_may_be_stored(error):
    async def write(_: Sequence[Row]) -> list[Row]:
        raise error("gone")

    with pytest.raises(error):
        await Groups(write).store(("s", None))
