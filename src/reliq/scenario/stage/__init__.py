"""
Everything that is real in a run: a database, the shipped commands, an upstream.

The stage is built in the order in which things need each other and is torn down whole, however
the run ends. What cannot be built is a `HarnessError`: the run then proves nothing.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from reliq.domain.duration import format_duration
from reliq.scenario.model import Processes as Wanted
from reliq.scenario.model import Scenario
from reliq.scenario.recorder import Recorder
from reliq.scenario.stage.postgres import Database, open_database
from reliq.scenario.stage.processes import Processes, open_processes
from reliq.scenario.stage.upstream import Upstream, open_upstream
from reliq.servers import PostgresServer
from reliq.servers.loopback import HOST, free_port

BUILD_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a run can reach: `receivers` are addresses, `secret` is what senders sign with."""

    database: Database
    processes: Processes
    upstream: Upstream
    receivers: Sequence[str]
    secret: str


@asynccontextmanager
async def open_stage(
    scenario: Scenario,
    *,
    server: PostgresServer,
    recorder: Recorder,
    folder: Path,
    code: Path,
    tell: Callable[[str], None],
) -> AsyncIterator[Stage]:
    """
    Build the stage; inside the block every process is ready.

    `folder` takes the processes' logs; `code` is the folder that holds the package `reliq` which
    the processes run.

    Raises:
        HarnessError: a part could not be built in BUILD_S seconds.

    """
    names: dict[int, str] = {}
    async with (
        open_database(server) as database,
        open_upstream(scenario.system.upstream, recorder, names) as upstream,
        open_processes(recorder, folder=folder, code=code, names=names) as processes,
    ):
        secret = "drill-secret"  # noqa: S105 - of senders and receivers that live for seconds
        env = {"RELIQ_DATABASE_URL": database.dsn, "RELIQ_SECRETS__DRILL": secret}
        env |= settings(scenario)
        with anyio.fail_after(BUILD_S):
            tell("stage: migrating")
            await processes.run("migrate", "migrate", env=env)
            tell(f"stage: starting {', '.join(scenario.names())}")
            receivers = await _start(processes, "receiver", scenario.system.receiver, env)
            workers = await _start(processes, "worker", scenario.system.worker, env)
            for name, address in (receivers | workers).items():
                await processes.ready(name, f"{address}/ready")
        yield Stage(
            database=database,
            processes=processes,
            upstream=upstream,
            receivers=list(receivers.values()),
            secret=secret,
        )


async def _start(
    processes: Processes, role: str, wanted: Wanted, env: Mapping[str, str]
) -> dict[str, str]:
    """Start the processes of one role; return where each answers for its health."""
    addresses = {}
    for n in range(1, wanted.count + 1):
        name, port = f"{role}-{n}", free_port()
        addresses[name] = f"http://{HOST}:{port}"
        if role == "receiver":
            own = {"RELIQ_HOST": HOST, "RELIQ_PORT": str(port)}
            await processes.start(name, "serve", env={**env, **own, **wanted.env})
        else:
            own = {"RELIQ_HEALTH_PORT": str(port)}
            command = ("worker", "--concurrency", str(wanted.concurrency))
            await processes.start(name, *command, env={**env, **own, **wanted.env})
    return addresses


def settings(scenario: Scenario) -> dict[str, str]:
    """Return the product's settings as environment variables, durations scaled to real time."""
    config = scenario.system.config
    product_times = {
        "RELIQ_LEASE": config.lease,
        "RELIQ_POLL": config.poll,
        "RELIQ_REAP_EVERY": config.reap_every,
        "RELIQ_TIME_LIMIT": config.time_limit,
        "RELIQ_RETRY_BASE": config.backoff.base,
        "RELIQ_RETRY_CAP": config.backoff.cap,
    }
    scaled = {
        name: format_duration(scenario.scaled(value)) for name, value in product_times.items()
    }
    return scaled | {
        "RELIQ_APP": "reliq.automations.drill:app",
        "RELIQ_RETRY_ATTEMPTS": str(config.attempts_max),
        "RELIQ_RETRY_JITTER": str(config.backoff.jitter),
        "RELIQ_GRACE": "5s",
        "RELIQ_DB_BUDGET": "30s",
        "RELIQ_LOG": "json",
    }
