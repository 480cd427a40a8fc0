"""
The stage of one run: built in the order in which things need each other, torn down whole.

What cannot be built is a `HarnessError`: the run then proves nothing.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from reliq.errors import HarnessError
from reliq.scenario.model import Processes as Wanted
from reliq.scenario.model import Scenario
from reliq.scenario.recorder import Recorder
from reliq.scenario.rig import Rig
from reliq.scenario.stage.database import Database, open_database
from reliq.scenario.stage.links import Links, bent
from reliq.scenario.stage.mailbox import TEMPLATES, Mailbox, open_mailbox
from reliq.scenario.stage.processes import Processes, base, open_processes
from reliq.scenario.stage.settings import settings
from reliq.scenario.stage.upstream import Upstream, open_upstream
from reliq.servers import PostgresServer
from reliq.servers.loopback import HOST, free_port

BUILD_S: Final = 60.0
SECRET: Final = "drill-secret"  # noqa: S105 - of senders and receivers that live for seconds


@dataclass(slots=True, kw_only=True)
class Stage:
    """What a run can reach."""

    scenario: Scenario
    server: PostgresServer
    database: Database
    processes: Processes
    upstream: Upstream
    mailbox: Mailbox
    links: Links
    said_before: int
    """Bytes of the server's log that are older than the run."""

    secret: str = SECRET
    _ports: dict[str, int] = field(default_factory=dict)

    @property
    def receivers(self) -> Sequence[str]:
        """The addresses that senders use, one for each receiver."""
        count = self.scenario.system.receiver.count
        ports = [self._ports[f"receiver-{n}"] for n in range(1, count + 1)]
        return [f"http://{HOST}:{self.links.ingress.get(port, port)}" for port in ports]

    @property
    def upstream_url(self) -> str:
        """The address that jobs call."""
        return f"http://{HOST}:{self.links.egress or self.upstream.port}/"

    def number_ports(self) -> None:
        """Give every process its port, which its later incarnations keep."""
        self._ports = {name: free_port() for name in self.scenario.names()}

    def port(self, name: str) -> int:
        """Return the port of a process."""
        return self._ports[name]

    async def start(self, name: str) -> None:
        """Start the next incarnation of a process, and wait until it is ready."""
        role, port = name.partition("-")[0], self._ports[name]
        wanted: Wanted = getattr(self.scenario.system, role)
        incarnation = self.processes.next_name(name)
        if role == "receiver":
            words = ["serve"]
            own = {"RELIQ_HOST": HOST, "RELIQ_PORT": str(port)}
        else:
            words = ["worker", "--concurrency", str(wanted.concurrency)]
            own = {"RELIQ_HEALTH_PORT": str(port)}
        env = {**self.environment(incarnation), **own, **wanted.env}
        running = await self.processes.start(incarnation, *words, env=env)
        await self.processes.ready(running, f"http://{HOST}:{port}/ready")
        if wanted.start == "held":
            self.processes.signal(incarnation, "STOP")

    async def operate(self, name: str, *words: str) -> tuple[int, str]:
        """Run an operator's command; return its exit code and what it said."""
        return await self.processes.run(name, *words, env=self.environment(name))

    def environment(self, process: str) -> Mapping[str, str]:
        """Return the environment of a process but for what its role adds."""
        address = self.database.dsn_of(process, self.links.db.get(base(process)))
        mail = {
            "RELIQ_MAIL_URL": self.mailbox.url, "RELIQ_MAIL_FROM": "shop@drill.test",
            "RELIQ_MAIL_TEMPLATES": str(TEMPLATES),
        }  # fmt: skip
        alerts = {"RELIQ_ALERT_URL": f"{self.upstream_url}alerts"}
        return {
            **settings(self.scenario),
            **({} if self.scenario.system.mail is None else mail),
            "RELIQ_DATABASE_URL": address,
            "RELIQ_SECRETS__DRILL": SECRET,
            **(alerts if self.scenario.system.alerts else {}),
        }


@asynccontextmanager
async def open_stage(
    scenario: Scenario,
    *,
    rig: Rig,
    seed: int,
    recorder: Recorder,
    folder: Path,
    tell: Callable[[str], None],
) -> AsyncIterator[Stage]:
    """
    Build the stage; inside the block every process that starts by itself is ready.

    `folder` takes the processes' logs.

    Raises:
        HarnessError: a part could not be built in BUILD_S seconds.

    """
    names: dict[int, str] = {}
    moves_clock = any(step.do.clock is not None for step in scenario.steps)
    async with (
        rig.ground(scenario) as ground,
        open_database(
            ground.server.dsn("postgres"), ground.template, ground.server.dsn,
            moves_clock=moves_clock,
        ) as database,
        open_upstream(scenario.system.upstream, recorder, names) as upstream,
        open_mailbox(scenario.system.mail or (), recorder) as mailbox,
        rig.network(scenario, seed) as network,
        open_processes(
            recorder, folder=folder, spawn=rig.spawn(scenario), names=names
        ) as processes,
    ):  # fmt: skip
        links = Links(network=network, wanted=bent(scenario))
        stage = Stage(
            scenario=scenario, server=ground.server, database=database, processes=processes,
            upstream=upstream, mailbox=mailbox, links=links, said_before=len(ground.server.log()),
        )  # fmt: skip
        stage.number_ports()
        await links.lay(
            receivers={name: stage.port(name) for name in scenario.names() if "receiver" in name},
            processes=scenario.names(), postgres=ground.server.port, upstream=upstream.port,
        )  # fmt: skip
        tell(f"stage: starting {', '.join(scenario.names())}")
        try:
            with anyio.fail_after(BUILD_S):
                async with anyio.create_task_group() as starting:
                    for role in ("receiver", "worker"):
                        wanted: Wanted = getattr(scenario.system, role)
                        for n in range(1, wanted.count + 1):
                            if wanted.start != "manual":
                                starting.start_soon(stage.start, f"{role}-{n}")
        except TimeoutError as error:
            raise HarnessError(f"the stage was not built in {BUILD_S:g} s") from error
        yield stage
