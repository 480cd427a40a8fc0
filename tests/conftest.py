"""What every test may ask for; the fixtures themselves are in `tests/fixtures`, by topic."""

from hypothesis import settings

# The machine is noisy: an example that took long is no failure.
settings.register_profile("reliq", deadline=None)
settings.load_profile("reliq")

pytest_plugins = (
    "tests.fixtures.postgres",
    "tests.fixtures.store",
    "tests.fixtures.processes",
    "tests.fixtures.network",
)
