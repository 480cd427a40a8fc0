"""What every test may ask for; the fixtures themselves are in `tests/fixtures`, by topic."""

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# The machine is noisy: an example that took long is no failure.
settings.register_profile("reliq", deadline=None)
settings.load_profile("reliq")

pytest_plugins = (
    "tests.fixtures.postgres",
    "tests.fixtures.store",
    "tests.fixtures.processes",
    "tests.fixtures.network",
    "tests.fixtures.filled",
    "tests.fixtures.pooler",
)

FILLED = ("tests/integration/test_plans.py", "tests/integration/test_costs.py")
"""What shares databases of millions of rows runs in one process, which fills them once."""


class OneProcessFillsThem(LoadScopeScheduling):
    """Gives tests out as `--dist load` does, but for those."""

    def _split_scope(self, nodeid: str) -> str:
        return "filled" if nodeid.startswith(FILLED) else nodeid


@pytest.hookimpl
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return OneProcessFillsThem(config, log) if config.getvalue("dist") == "load" else None
