"""A mutant of a migration breaks what stands when all are applied: a later one may replace it."""

from pathlib import Path
from shutil import which

import asyncpg
import pytest

from reliq.scenario.mutants import load_mutants, patched

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
FOLDER = Path("reliq", "postgres", "migrations")
MUTANTS = {
    mutant.name: mutant
    for mutant in load_mutants(ROOT / "tests" / "chaos" / "mutants", ROOT / "scenarios")
    if FOLDER.as_posix() in mutant.patch.read_text(encoding="utf-8")
}
SHIPPED = sorted(file.name for file in (ROOT / "src" / FOLDER).glob("*.sql"))
SCHEMA = """
    select array_agg(what order by what) from (
      select pg_get_functiondef(p.oid) as what from pg_proc p
      where p.pronamespace = 'reliq'::regnamespace
      union all select indexdef from pg_indexes where schemaname = 'reliq'
      union all select conrelid::regclass || pg_get_constraintdef(oid) from pg_constraint
      where connamespace = 'reliq'::regnamespace
      union all select attrelid::regclass || attname || pg_get_expr(adbin, adrelid)
      from pg_attribute join pg_attrdef on (adrelid, adnum) = (attrelid, attnum)
      where attrelid in (select oid from pg_class where relnamespace = 'reliq'::regnamespace)
    ) as parts
"""


async def schema(dsn: str, files: list[Path]) -> list[str]:
    """Apply migrations to an empty schema, and read what stands then."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("drop schema reliq cascade")
        for file in files:
            await connection.execute(file.read_text(encoding="utf-8"))
        stands: list[str] = await connection.fetchval(SCHEMA)
        return stands
    finally:
        await connection.close()


@pytest.mark.skipif(which("patch") is None, reason="no `patch` on the PATH: mutants need it")
@pytest.mark.parametrize("name", MUTANTS)
async def test_a_mutant_of_a_migration_is_there_in_the_end(dsn: str, name: str):
    async with patched(MUTANTS[name]) as code:
        broken = await schema(dsn, [code / FOLDER / file for file in SHIPPED])

    assert broken != await schema(dsn, [ROOT / "src" / FOLDER / file for file in SHIPPED])
