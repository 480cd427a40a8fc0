"""What every test may ask for; the fixtures themselves are in `tests/fixtures`, by topic."""

pytest_plugins = (
    "tests.fixtures.postgres",
    "tests.fixtures.store",
    "tests.fixtures.processes",
)
