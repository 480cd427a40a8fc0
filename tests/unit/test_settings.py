"""The settings: all problems at once, in words, without a secret."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from reliq.cli.settings import described, without_password
from reliq.settings import ALERT_KEYS, Settings, environment, load, read

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / ".env.example"
FIRST_TABLES = ROOT / "src/reliq/postgres/migrations/0001_first_tables.sql"
NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer"
DATABASE = "postgresql://reliq:hunter2@db.example:5432/reliq"


@pytest.fixture
def given(monkeypatch, tmp_path):
    """Set exactly these variables and this file, and nothing that the machine happens to have."""
    monkeypatch.chdir(tmp_path)
    for name in environment():
        monkeypatch.delenv(name)

    def given(file: str = "", **variables: str) -> None:
        if file:
            (tmp_path / ".env").write_text(file)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return given


def test_every_problem_is_named_at_once(given):
    given(
        RELIQ_PORT="http", RELIQ_LEASE="soon", RELIQ_CONCURRENCY="0", RELIQ_CONCURENCY="3",
        RELIQ_RETRY_CAP="1s",
    )  # fmt: skip

    settings, problems = load()

    assert settings is None
    assert problems == [
        "RELIQ_CONCURENCY is no setting: did you mean RELIQ_CONCURRENCY?",
        "RELIQ_DATABASE_URL is missing: the Postgres to use, postgresql://…",
        f"RELIQ_PORT=http is wrong: {NO_INTEGER}",
        "RELIQ_CONCURRENCY=0 is wrong: Input should be greater than or equal to 1",
        "RELIQ_LEASE=soon is wrong: 'soon' is no duration: write 90, 500ms, 30s, 5m, 1h30m or 35d",
        "RELIQ_RETRY_CAP must not be below RELIQ_RETRY_BASE",
    ]


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"TELEGRAM_API": "foo"}, "RELIQ_TELEGRAM_API=foo is wrong: write it as https://"),
        ({"TELEGRAM_TOKEN": "abc"}, "RELIQ_TELEGRAM_TOKEN=… is wrong: write it as BotFather"),
        ({"TELEGRAM_TOKEN": "1:a/b"}, "RELIQ_TELEGRAM_TOKEN=… is wrong"),
        ({"ALERT_CHAT_ID": "xyz"}, "RELIQ_ALERT_CHAT_ID=xyz is wrong: write it as a number"),
        ({"ALERT_CHAT_ID": "@"}, "RELIQ_ALERT_CHAT_ID=@ is wrong"),
        ({"SITE_FORWARD_URL": "foo"}, "RELIQ_SITE_FORWARD_URL=… is wrong: write it as https://"),
        ({"MAIL_TIMEOUT": "30s"}, "RELIQ_MAIL_TIMEOUT must be below 30s, which mail.send may run"),
    ],
)
def test_what_is_no_setting_that_could_work_is_refused_in_words(given, variables, problem):
    given(RELIQ_DATABASE_URL=DATABASE, **{f"RELIQ_{name}": it for name, it in variables.items()})

    settings, problems = load()

    assert settings is None
    assert [each.startswith(problem) for each in problems] == [True]


@pytest.mark.parametrize("chat", ["-1001234567890", "0", "@ops_channel"])
def test_a_chat_is_a_number_or_a_channel(given, chat):
    given(RELIQ_DATABASE_URL=DATABASE, RELIQ_ALERT_CHAT_ID=chat)

    assert load()[0].alert_chat_id == chat


def test_all_broken_relations_are_named(given):
    given(
        RELIQ_DATABASE_URL=DATABASE, RELIQ_LEASE="2s", RELIQ_POLL="2s", RELIQ_REAP_EVERY="4s",
        RELIQ_RETRY_BASE="2h", RELIQ_KEEP_KEYS="30d", RELIQ_KEEP_EFFECTS="180d",
        RELIQ_ALERT_WINDOW="36d",
    )  # fmt: skip

    settings, problems = load()

    assert settings is None
    assert [problem.split()[0] for problem in problems] == [
        "RELIQ_POLL",
        "RELIQ_REAP_EVERY",
        "RELIQ_RETRY_CAP",
        "RELIQ_KEEP_KEYS",
        "RELIQ_KEEP_EFFECTS",
        "RELIQ_ALERT_WINDOW",
    ]


@pytest.mark.parametrize("name", ["RELIQ_KEEP_DEAD", "RELIQ_KEEP_IGNORED", "RELIQ_KEEP_KEYS"])
def test_nothing_that_can_be_made_anew_outlives_what_was_done(given, name):
    given(RELIQ_DATABASE_URL=DATABASE, **{name: "400d"})

    _, problems = load()

    assert [problem.split(" must")[0] for problem in problems] == ["RELIQ_KEEP_EFFECTS"]


def test_an_alert_is_remembered_for_as_long_as_the_longest_window(given):
    given(RELIQ_DATABASE_URL=DATABASE, RELIQ_ALERT_WINDOW="35d")

    assert load()[1] == []
    [remembered] = re.findall(r"key_ttl +interval default '(\d+) days'", FIRST_TABLES.read_text())
    assert timedelta(days=int(remembered)) == ALERT_KEYS


@pytest.mark.parametrize("name", ["RELIQ_WORKER", "RELIQ_PORT__INNER", "RELIQ_"])
def test_a_name_that_is_no_setting_is_a_problem(given, name):
    given(RELIQ_DATABASE_URL=DATABASE, **{name: "1"})

    _, problems = load()

    assert [problem.split(":")[0] for problem in problems] == [f"{name} is no setting"]


@pytest.mark.parametrize(
    "variables",
    [
        {"RELIQ_DATABASE_URL": "hunter2"},
        {"RELIQ_DATABASE_URL": "mysql://u:hunter2@h/d"},
        {"RELIQ_SECRETS": "hunter2"},
        {"RELIQ_SECRETS": '["hunter2"]'},
        {"RELIQ_SECRETS": '{"site": {"x": "hunter2"}}'},
        {"RELIQ_TELEGRAM_TOKEN": "hunter2", "RELIQ_PORT": "no"},
        {"RELIQ_SECRETS__SITE": "hunter2", "RELIQ_PORT": "no"},
        {"RELIQ_DATABASE_URL": DATABASE, "RELIQ_ENCRYPTION_KEYS": "2026a:hunter2"},
        {"RELIQ_DATABASE_URL": DATABASE, "RELIQ_ALERT_URL": "ops.test/hunter2"},
        {"RELIQ_DATABASE_URL": DATABASE, "RELIQ_WATCH_PING_URL": "https:///hunter2"},
    ],
)
def test_no_message_holds_a_secret(given, variables):
    given(**variables)

    settings, problems = load()

    assert settings is None
    assert problems
    assert "hunter2" not in " ".join(problems)


def test_a_listing_masks_every_secret_and_says_where_values_come_from(given):
    given(
        "RELIQ_PORT=9000\nRELIQ_SECRETS__SITE=hunter2\n",
        RELIQ_DATABASE_URL=DATABASE, RELIQ_TELEGRAM_TOKEN="1:hunter2", RELIQ_LEASE="90",
    )  # fmt: skip
    settings, _ = load()

    rows = {name: (value, origin) for name, value, origin in described(settings)}

    assert "hunter2" not in str(rows)
    assert rows["RELIQ_DATABASE_URL"] == ("postgresql://…@db.example:5432/reliq", "environment")
    assert rows["RELIQ_TELEGRAM_TOKEN"] == ("********", "environment")
    assert rows["RELIQ_SECRETS__SITE"] == ("********", ".env")
    assert rows["RELIQ_PORT"] == ("9000", ".env")
    assert rows["RELIQ_LEASE"] == ("1m30s", "environment")
    assert rows["RELIQ_GRACE"] == ("1m", "default")


def test_the_environment_beats_the_file_unless_it_is_empty(given):
    given(
        f"RELIQ_DATABASE_URL={DATABASE}\nRELIQ_PORT=1\nRELIQ_CONCURRENCY=2\n",
        RELIQ_PORT="3", RELIQ_CONCURRENCY="",
    )  # fmt: skip

    settings, problems = load()

    assert problems == []
    assert (settings.port, settings.concurrency) == (3, 2)
    origins = {name: origin for name, _, origin in described(settings)}
    assert (origins["RELIQ_PORT"], origins["RELIQ_CONCURRENCY"]) == ("environment", ".env")


def test_the_second_best_has_defaults_where_values_are_wrong(given):
    given(RELIQ_PORT="no", RELIQ_LEASE="2m", RELIQ_SECRETS__SITE="s3cret")

    settings, second_best, problems = read()

    assert settings is None
    assert len(problems) == 2
    assert (second_best.port, second_best.lease) == (8000, timedelta(minutes=2))
    assert second_best.secret("site") == "s3cret"
    assert second_best.dsn == "postgresql://nowhere/none"


def test_a_secret_is_found_by_the_name_of_its_source(given):
    given(RELIQ_DATABASE_URL=DATABASE, RELIQ_SECRETS__MY_SHOP="abc")

    settings, problems = load()

    assert problems == []
    assert settings.secret("My-Shop") == "abc"
    assert settings.secret("other") is None


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:p@h:5432/d", "postgresql://…@h:5432/d"),
        ("postgres://h/d?password=hunter2", "postgresql://…@h/d"),
        ("postgresql://u:p@h1,h2/d", "postgresql://…@h1,h2/d"),
        ("postgresql://u:hunter/2@h/d", "********"),
        ("postgresql://u:hunter?2@h/d", "********"),
        ("postgresql://u:hunter2", "********"),
        ("postgresql://u@hunter2@h/d", "********"),
    ],
)
def test_an_address_is_shown_without_its_password(dsn, shown):
    assert without_password(dsn) == shown


def test_the_example_file_names_every_setting_and_no_other():
    found = re.findall(r"^(?:# )?(RELIQ_\w+)=", EXAMPLE.read_text(), re.MULTILINE)
    names = {re.sub("__.*", "", name) for name in found}

    assert names == {f"RELIQ_{field.upper()}" for field in Settings.model_fields}
    assert len(found) == len(set(found))


def test_the_example_file_shows_the_defaults(given):
    text = re.sub(r"^# (RELIQ_\w+=)", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE)
    given(text, RELIQ_DATABASE_URL=DATABASE)

    settings, problems = load()

    assert problems == []
    plain = Settings.model_construct()
    given_values = {
        field: value
        for field, value in settings.model_dump().items()
        if value != getattr(plain, field, None) and field not in {"database_url", "secrets"}
    }
    assert given_values == {}
