"""
Every setting, from the environment and `.env`, in one frozen value.

Names are `RELIQ_` and the field in capitals; a secret of a source is
`RELIQ_SECRETS__<SOURCE>`. A wrong or missing setting stops the start, and all of them are
named at once. No message holds the value of a secret.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from dotenv import dotenv_values
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from reliq.domain.duration import format_duration, parse_duration
from reliq.domain.http import WEB_ADDRESS
from reliq.domain.keep import Keep, Keeps
from reliq.domain.lanes import read_queues
from reliq.domain.policy import MAIL
from reliq.domain.retry import RetryPolicy
from reliq.domain.sealed import read_keys
from reliq.domain.signature import check_secrets
from reliq.domain.smtp import read_mail_url

PREFIX: Final = "RELIQ_"
ENV_FILE: Final = Path(".env")

ALERT_KEYS: Final = timedelta(days=35)
"""How long `reliq.raise_alert` remembers an alert, whatever RELIQ_KEEP_KEYS says."""

NESTED: Final = "__"
_PLACEHOLDER: Final = SecretStr("postgresql://nowhere/none")

_HOST: Final = r"(?:[\w.%~-]*|\[[0-9a-fA-F:.]+\])(?::\d+)?"
_ADDRESS: Final = re.compile(
    rf"postgres(?:ql)?://(?:[^@/?#\s\[\]]*@)?{_HOST}(?:,{_HOST})*(?:/[^?#\s]*)?(?:\?[^#\s]*)?"
)


def _duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("write a duration above 0, as 500ms, 30s or 5m")
    return value


def _guard(secret: str) -> None:
    check_secrets([secret.encode()])


def _plain(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _read_by(read: Callable[[str], object]) -> AfterValidator:
    """Take what this reads without a ValueError."""

    def check(value: object) -> object:
        read(_plain(value))
        return value

    return AfterValidator(check)


def _like(pattern: re.Pattern[str], how: str) -> AfterValidator:
    """Take what is written like that, and say of everything else how to write it."""

    def read(text: str) -> None:
        if not pattern.fullmatch(text):
            raise ValueError(f"write it as {how}")

    return _read_by(read)


_TOKEN: Final = re.compile("[0-9]+:[A-Za-z0-9_-]+")
_CHAT: Final = re.compile("-?[0-9]+|@[A-Za-z0-9_]+")
_BASE: Final = re.compile(r"https?://[^\s?#]+")
_HOW: Final = (
    "postgresql://user:password@host:5432/database, "
    "the characters / ? # @ [ of a password as %2F %3F %23 %40 %5B"
)

Duration = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_positive)]
Address = Annotated[SecretStr, _like(_ADDRESS, _HOW)]
WebAddress = Annotated[SecretStr, _like(WEB_ADDRESS, "https://host/path, or http://")]
BaseAddress = Annotated[str, _like(_BASE, "https://hooks.example.com, without ? and #")]
BotToken = Annotated[SecretStr, _like(_TOKEN, "BotFather gave it: a number, a colon, letters")]
Chat = Annotated[str, _like(_CHAT, "a number, -1001234567890, or as @channel")]


class Settings(BaseSettings):
    """What the operator decides; durations are written `500ms`, `30s`, `5m`, `1h`, `35d`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
    )

    database_url: Address = Field(description="the Postgres to use, postgresql://…")
    app: str = Field("reliq.automations:app", description="the App to run, as module:name")
    secrets: dict[str, SecretStr] = Field(
        default_factory=dict, description="one per source: what its senders sign with"
    )

    encryption_keys: Annotated[SecretStr, _read_by(read_keys)] | None = Field(
        None, description="for secret fields of payloads, 2026b:<key>,2026a:<key>, newest first"
    )

    host: str = Field("127.0.0.1", description="the address the receiver listens on")
    port: int = Field(8000, ge=0, le=65535, description="the port of the receiver")
    body_max: int = Field(1024 * 1024, gt=0, description="bytes a delivery may have")
    store_deadline: Duration = Field(
        timedelta(milliseconds=500), description="storing takes longer: answer 503"
    )

    concurrency: int = Field(200, ge=1, le=10_000, description="jobs a worker runs at once")
    queues: Annotated[str, _read_by(read_queues)] = Field(
        "", description="what a worker claims of, as urgent,default,reports:20; empty: all"
    )
    transactions: int = Field(
        10, ge=1, le=1_000, description="connections for the jobs that write in job.transaction()"
    )
    lease: Duration = Field(timedelta(seconds=60), description="a silent worker loses its jobs")
    time_limit: Duration = Field(timedelta(minutes=5), description="how long a job may run")
    grace: Duration = Field(timedelta(seconds=60), description="for jobs to end after SIGTERM")
    poll: Duration = Field(timedelta(seconds=1), description="an idle worker looks this often")
    reap_every: Duration = Field(timedelta(seconds=5), description="look for ended leases")
    schedule_every: Duration = Field(timedelta(seconds=30), description="look for due slots")
    db_budget: Duration = Field(
        timedelta(minutes=5), description="the database may be away before a worker exits (75)"
    )
    statement_deadline: Duration = Field(timedelta(seconds=10), description="per statement")
    health_port: int | None = Field(None, ge=0, le=65535, description="of the worker")

    retry_base: Duration = Field(timedelta(seconds=10), description="the first pause")
    retry_cap: Duration = Field(timedelta(hours=1), description="no pause is longer")
    retry_jitter: float = Field(0.2, ge=0, lt=1, description="share by which pauses spread")
    retry_attempts: int = Field(8, ge=1, description="tries before a job is dead")
    retry_after_max: Duration = Field(timedelta(hours=24), description="an upstream may ask for")

    telegram_token: BotToken | None = Field(None, description="of the bot, from BotFather")
    telegram_api: BaseAddress = Field("https://api.telegram.org", description="its base address")
    telegram_timeout: Duration = Field(timedelta(seconds=10), description="total, per call")
    alert_chat_id: Chat | None = Field(
        None, description="the chat that alerts go to, where no RELIQ_ALERT_URL takes them"
    )
    alert_window: Duration = Field(timedelta(hours=1), description="one alert per error in it")
    alert_url: WebAddress | None = Field(
        None, description="an http(s) address that alerts are posted to, as JSON"
    )
    watch_dead: int = Field(20, ge=1, description="dead letters in a window that are an alarm")
    watch_same_error: int = Field(10, ge=1, description="of one kind and error, an alarm")
    watch_lost_leases: int = Field(20, ge=1, description="lost in a window that are an alarm")
    watch_due_age: Duration = Field(
        timedelta(minutes=10), description="jobs due, or a slot missed, for so long are an alarm"
    )
    watch_ping_url: WebAddress | None = Field(
        None, description="an http(s) address that is called each minute while no alarm is on"
    )
    site_forward_url: WebAddress | None = Field(
        None, description="where the site's forms are posted on to; such addresses hold tokens"
    )
    webhook_timeout: Duration = Field(
        timedelta(seconds=15), description="total, per attempt at an endpoint"
    )
    webhook_private: bool = Field(
        default=False,
        description="on: endpoints may be http, at any port and address; for tests alone",
    )

    mail_url: Annotated[SecretStr, _read_by(read_mail_url)] | None = Field(
        None, description="hands mails in, smtp://user:password@host:587; unset: no mail.send here"
    )
    mail_from: str | None = Field(None, description="the sender, as Shop <shop@example.com>")
    mail_templates: Path | None = Field(None, description="the folder with the texts of mails")
    mail_timeout: Duration = Field(timedelta(seconds=10), description="total, per mail")
    mail_unknown: Literal["repeat", "hold"] = Field(
        "repeat", description="a mail of which nobody knows whether it was sent; hold: ask a person"
    )
    report_secret: Annotated[SecretStr, _read_by(_guard)] | None = Field(
        None, description="what links to reports are signed with; unset: none is handed out"
    )
    public_url: BaseAddress | None = Field(
        None, description="the receiver's address for the world, as https://hooks.example.com"
    )

    prune: bool = Field(default=True, description="off: no worker prunes; run `reliq prune` daily")
    prune_every: Duration = Field(timedelta(hours=1), description="one of all workers prunes")
    keep_jobs: Duration = Field(timedelta(days=30), description="jobs that succeeded, for prune")
    keep_cancelled: Duration = Field(timedelta(days=30), description="cancelled jobs, for prune")
    keep_dead: Duration = Field(
        timedelta(days=180), description="dead letters and what could not be read, for prune"
    )
    keep_ignored: Duration = Field(
        timedelta(days=90), description="those of them that somebody has ignored, for prune"
    )
    keep_bodies: Duration = Field(timedelta(days=30), description="bodies of events, for prune")
    keep_keys: Duration = Field(timedelta(days=35), description="dedup and idempotency keys")
    keep_effects: Duration = Field(
        timedelta(days=400), description="effects of job.once() that are done"
    )

    prepared: bool = Field(
        default=True, description="off for a pooler that cannot keep prepared statements"
    )
    planner: Literal["pool", "role"] = Field(
        "pool", description="who turns sequential scans off; role behind a transaction pooler"
    )
    listen_url: Address | None = Field(
        None, description="Postgres itself, for LISTEN, where the other address is a pooler's"
    )
    log: Literal["auto", "json", "text"] = Field("auto", description="auto: text on a terminal")

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if problems := list(self._unrelated()):
            raise ValueError("\n".join(problems))
        return self

    def _unrelated(self) -> Iterator[str]:
        if self.poll >= self.lease:
            yield "RELIQ_POLL must be shorter than RELIQ_LEASE: a takeover waits for both"
        if self.reap_every >= self.lease * 2:
            yield "RELIQ_REAP_EVERY must be shorter than two RELIQ_LEASEs"
        if self.retry_cap < self.retry_base:
            yield "RELIQ_RETRY_CAP must not be below RELIQ_RETRY_BASE"
        if (most := MAIL.time_limit) is not None and self.mail_timeout >= most:
            yield f"RELIQ_MAIL_TIMEOUT must be below {format_duration(most)}, which mail.send may run"
        if self.keep_keys <= self.keep_bodies:
            yield "RELIQ_KEEP_KEYS must exceed RELIQ_KEEP_BODIES: a replay must find its keys"
        if self.keep_effects <= max(self.keep_dead, self.keep_ignored, self.keep_keys):
            yield (
                "RELIQ_KEEP_EFFECTS must exceed RELIQ_KEEP_DEAD, RELIQ_KEEP_IGNORED and "
                "RELIQ_KEEP_KEYS: a job that is made anew must find what was done"
            )
        if self.alert_window > ALERT_KEYS:
            yield f"RELIQ_ALERT_WINDOW must be at most {ALERT_KEYS.days}d: alerts that were sent are remembered for so long"

    @property
    def dsn(self) -> str:
        """The database's address with its password."""
        return self.database_url.get_secret_value()

    @property
    def retry(self) -> RetryPolicy:
        """The policy of kinds that have none of their own."""
        return RetryPolicy(
            base=self.retry_base, cap=self.retry_cap, jitter=self.retry_jitter,
            attempts_max=self.retry_attempts, retry_after_max=self.retry_after_max,
        )  # fmt: skip

    def keeps(self, kinds: Mapping[str, Keep]) -> Keeps:
        """Say how long everything is kept, some kinds in their own way."""
        usual = Keep(
            succeeded=self.keep_jobs, cancelled=self.keep_cancelled, dead=self.keep_dead,
            ignored=self.keep_ignored,
        )  # fmt: skip
        return Keeps(usual=usual, bodies=self.keep_bodies, effects=self.keep_effects, kinds=kinds)

    def missing(self, *fields: str) -> list[str]:
        """Say which of these settings are not given, and what they are."""
        return [
            f"{variable(field)} is missing: {type(self).model_fields[field].description}"
            for field in fields
            if getattr(self, field) is None
        ]

    def secret(self, source: str) -> str | None:
        """Look up the secret of a source; dashes in its name are underscores in the environment."""
        found = self.secrets.get(source.lower().replace("-", "_"))
        return None if found is None else found.get_secret_value()


def environment(env_file: Path = ENV_FILE) -> dict[str, tuple[str, str]]:
    """
    Read `RELIQ_…` variables: name → (value, where from); the environment beats the file.

    An empty variable counts as not set, so it does not hide what the file says.
    """
    told: dict[str, tuple[str, str]] = {}
    if env_file.is_file():
        for name, value in dotenv_values(env_file).items():
            told[name.upper()] = (value or "", str(env_file))
    for name, value in os.environ.items():  # noqa: TID251 - here is where it is read
        if value or name.upper() not in told:
            told[name.upper()] = (value, "environment")
    ours = {name: found for name, found in told.items() if name.startswith(PREFIX)}
    return {name: found for name, found in ours.items() if not name.startswith("RELIQ_TEST_")}


def load(env_file: Path = ENV_FILE) -> tuple[Settings | None, list[str]]:
    """Read the settings: the value, or None, and every problem in words."""
    settings, _, problems = read(env_file)
    return settings, problems


def read(env_file: Path = ENV_FILE) -> tuple[Settings | None, Settings | None, list[str]]:
    """
    Read the settings; also a second best, for whoever looks for further problems.

    The second best has the default in place of each wrong value, and an address that leads
    nowhere in place of a wrong or missing one: nothing may be started with it. It is None
    where not even that could be made.
    """
    problems = [_unknown(name) for name in environment(env_file) if not _is_known(name)]
    try:
        settings = _make(env_file)
    except SettingsError:
        return None, None, [*problems, f"{variable('secrets')} is no JSON: {_HOW_SECRETS}"]
    except ValidationError as error:
        problems += _in_words(error)
        second, more = _second_best(env_file, _wrong(error))
        return None, second, problems + more
    return settings, settings, problems


def _make(env_file: Path, **instead: Any) -> Settings:
    # mypy sees the fields only, and not what pydantic-settings takes besides.
    return Settings(_env_file=env_file, **instead)  # type: ignore[call-arg]


_HOW_SECRETS: Final = "set one RELIQ_SECRETS__<SOURCE> for each source instead"


def _second_best(env_file: Path, wrong: set[str]) -> tuple[Settings | None, list[str]]:
    """Replace what is wrong by defaults; relations between the others are problems, too."""
    if not wrong or "secrets" in wrong:
        return None, []
    defaults = {
        field: Settings.model_fields[field].get_default(call_default_factory=True)
        for field in wrong - {"database_url"}
    }
    if "database_url" in wrong:
        defaults["database_url"] = _PLACEHOLDER
    try:
        return _make(env_file, **defaults), []
    except ValidationError as error:
        return None, _in_words(error)


def _wrong(error: ValidationError) -> set[str]:
    return {str(item["loc"][0]) for item in error.errors() if item["loc"]}


def variable(field: str) -> str:
    """Name the variable of a setting."""
    return f"{PREFIX}{field.upper()}"


def _is_known(name: str) -> bool:
    field, nested, _ = name.removeprefix(PREFIX).lower().partition(NESTED)
    return field in Settings.model_fields and (not nested or field == "secrets")


def _unknown(name: str) -> str:
    known = [variable(field) for field in Settings.model_fields]
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name} is no setting" + (f": did you mean {near[0]}?" if near else "")


def _in_words(error: ValidationError) -> list[str]:
    return [words for item in error.errors() for words in _words(item)]


def _words(item: Any) -> list[str]:
    text = str(item["msg"]).removeprefix("Value error, ")
    if not item["loc"]:
        return text.splitlines()
    field = str(item["loc"][0])
    if item["type"] == "missing":
        return [f"{variable(field)} is missing: {Settings.model_fields[field].description}"]
    if field == "secrets":
        return [f"{variable(field)}=… is wrong: {_HOW_SECRETS}"]
    shown = "…" if _is_secret(field) else item["input"]
    return [f"{variable(field)}={shown} is wrong: {text}"]


def _is_secret(field: str) -> bool:
    return "SecretStr" in str(Settings.model_fields[field].annotation)
