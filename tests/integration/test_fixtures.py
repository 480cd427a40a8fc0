"""The fixtures do what other tests rely on."""

from datetime import timedelta

import asyncpg
import pytest

pytestmark = pytest.mark.anyio


async def test_the_clock_jumps_for_statements_that_are_prepared_already(dsn, clock):
    connection = await asyncpg.connect(dsn)
    passed = await connection.prepare("select reliq.now() - statement_timestamp()")

    before = await passed.fetchval()
    await clock.forward(90)
    after = await passed.fetchval()
    await connection.close()

    assert (before, after) == (timedelta(0), timedelta(seconds=90))


@pytest.mark.parametrize("turn", [1, 2])
async def test_every_test_has_a_database_of_its_own(dsn, turn):
    connection = await asyncpg.connect(dsn)

    await connection.execute("create table reliq.mine ()")
    await connection.close()


async def test_the_server_keeps_its_promise_to_commit(dsn):
    connection = await asyncpg.connect(dsn)

    setting = await connection.fetchval("show synchronous_commit")
    await connection.close()

    assert setting == "on"


def test_a_synchronous_test_may_have_a_database_too(dsn):
    assert dsn.startswith("postgresql://")
