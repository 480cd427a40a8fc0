"""What is under test, in product time, and the upstream and the mail server that it calls."""

from datetime import timedelta
from typing import Literal

from pydantic import Field

from reliq.scenario.model.times import Real, Strict


class Reply(Strict):
    """
    What the upstream does with one call; `delay` is how long it thinks before.

    `hang` never answers. `drip` sends the body byte by byte, with such pauses. `reset` cuts the
    connection instead of, or in the middle of the answer.
    """

    status: int = Field(default=200, ge=200, le=599)
    delay: Real = timedelta(0)
    headers: dict[str, str] = {}
    body: str = "the drill's upstream has answered\n"
    retry_after: str | None = Field(default=None, description="seconds, or an HTTP date")
    location: str | None = Field(default=None, description="where a redirect points to")
    hang: bool = False
    drip: Real | None = None
    reset: Literal["before", "after-headers", "mid-body"] | None = None


class Rule(Strict):
    """A reply for calls that no rule above took; for ever, or so many times."""

    reply: Reply
    times: int | None = Field(default=None, ge=1)
    times_per_job: int | None = Field(default=None, ge=1)


class Dispatch(Strict):
    """
    What the mail server says to texts that no rule above took; for ever, or so many times.

    `later` and `refuse` are a 451 and a 554 after the text. `drop_after_data` has the text, and closes
    the connection instead of answering.
    """

    reply: Literal["accept", "later", "refuse", "drop_after_data"]
    times: int | None = Field(default=None, ge=1)


class Backoff(Strict):
    """The policy of retries; each pause is twice the one before."""

    base: Real = timedelta(seconds=10)
    cap: Real = timedelta(hours=1)
    jitter: float = Field(default=0.2, ge=0, lt=1)


class Table(Strict):
    """A kind's own policy: its pauses, in product time, and one attempt more than there are."""

    pauses: list[Real] = Field(min_length=1)
    jitter: float = Field(default=0.1, ge=0, lt=1)


class Config(Strict):
    """
    Settings of the product, in product time.

    Nothing is pruned unless `prune_every` is given; `keep` is for jobs and bodies. Not divided by
    the timescale: `grace`, `db_budget`, `store_deadline`, which bound real work.
    """

    lease: Real = timedelta(minutes=5)
    poll: Real = timedelta(seconds=30)
    reap_every: Real = timedelta(seconds=50)
    schedule_every: Real = timedelta(seconds=50)
    time_limit: Real = timedelta(hours=1)
    attempts_max: int = Field(default=8, ge=1)
    backoff: Backoff = Backoff()
    retry_after_max: Real = timedelta(hours=24)
    prune_every: Real | None = None
    keep: Real = timedelta(days=30)
    grace: Real = timedelta(seconds=5)
    db_budget: Real = timedelta(seconds=30)
    store_deadline: Real = timedelta(seconds=5)
    encryption_keys: str = ""
    mail_unknown: Literal["repeat", "hold"] = "repeat"


class Processes(Strict):
    """
    How many processes of one command.

    `held` ones are ready and halted until a step releases them all at one instant; `manual`
    ones are started by a step.
    """

    count: int = Field(default=1, ge=0, le=50)
    concurrency: int = Field(default=1, ge=1)
    start: Literal["auto", "held", "manual"] = "auto"
    env: dict[str, str] = {}


class Schedule(Strict):
    """A job of kind `drill.tick` for every slot, `every` so much product time."""

    name: str = Field(pattern=r"^[a-z0-9.-]+$")
    every: Real
    missed: Literal["latest", "all", "none"] = "latest"


class Postgres(Strict):
    """Settings of a server of the run's own (`isolation: server`), as in postgresql.conf."""

    settings: dict[str, str] = {}


class System(Strict):
    """What is under test, and the upstream that it calls."""

    app: str = "reliq.automations.drill:app"
    postgres: Postgres = Postgres()
    receiver: Processes = Processes()
    worker: Processes = Processes()
    config: Config = Config()
    policies: dict[str, Table] = Field(default={}, description="of kinds of the drill")
    upstream: list[Rule] = []
    mail: list[Dispatch] | None = Field(
        default=None,
        description="with it workers are given a mail server, which takes what no rule is for",
    )
    alerts: bool = Field(
        default=False, description="jobs that die make alerts, which are posted to the upstream"
    )
    schedules: list[Schedule] = []
