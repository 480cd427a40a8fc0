"""
`reliq demo`: the main job, end to end, with everything that usually goes wrong.

Real parts on this machine: Postgres, the shipped commands, HTTP. What is expected of each
delivery stands beside what was seen; the exit code is 0 only if all of it agrees.
"""

import secrets
import tempfile
import time
from pathlib import Path
from typing import Final

import anyio
import httpx
from rich.console import Console
from rich.table import Table

from reliq.demo.inbox import open_inbox
from reliq.demo.purchase import Shop, buy, judge_purchase
from reliq.demo.stack import RELIQ, Place, Stack, running
from reliq.demo.standin import ALERT_CHAT, StandIn, stand_in
from reliq.demo.steps import GITHUB_SECRET, Check, Demo, judge, send_all
from reliq.demo.timeline import follow, show_timelines
from reliq.postgres.desk import Desk
from reliq.postgres.pool import Database

FINISH_S: Final = 30.0
"""For all jobs to come to rest."""


def demo(*, keep: bool = False) -> int:
    """
    Run the demo and return the exit code: 0 if everything agrees, else 1.

    With `keep` it goes on running afterwards, for a look around, until Ctrl-C.
    """
    return anyio.run(_demo, Console(highlight=False, soft_wrap=True), keep)


async def _demo(console: Console, keep: bool) -> int:  # noqa: FBT001 - anyio.run takes no keywords
    with tempfile.TemporaryDirectory(prefix="reliq-demo-") as name:
        folder = Path(name)
        async with stand_in() as upstream, open_inbox() as inbox:
            shop = Shop.opened(inbox)
            secret = {"site": secrets.token_hex(32), "telegram": secrets.token_urlsafe(32)}
            began = time.monotonic()
            console.print("[bold]Starting[/bold] Postgres, `reliq serve`, `reliq worker` …")
            env = _settings(upstream, secret) | shop.settings
            async with running(folder, place=Place(), env=env) as stack:
                console.print(f"  ready after {time.monotonic() - began:.1f} s\n")
                checks = await _play(console, stack, upstream, secret, shop)
                is_good = _report(console, checks)
                _next_steps(console, stack if keep else None)
                if keep:
                    await anyio.sleep_forever()
    return 0 if is_good else 1


async def _play(
    console: Console, stack: Stack, upstream: StandIn, secret: dict[str, str], shop: Shop
) -> list[Check]:
    database = Database(dsn=stack.dsn)
    async with (
        database.pool("reliq demo", 2) as pool,
        httpx.AsyncClient(timeout=10, base_url=stack.receiver) as client,
    ):
        demo = Demo(
            client=client, desk=Desk(pool), upstream=upstream, secrets=secret, console=console
        )
        console.print("[bold]Deliveries[/bold]")
        await send_all(demo, pool)
        console.print("\n[bold]A purchase[/bold], in one transaction")
        bought = await buy(demo, shop, pool)
        console.print("\n[bold]Jobs, as they move[/bold]")
        await follow(console, demo.desk, FINISH_S)
        console.print("\n[bold]What each job went through[/bold]")
        await show_timelines(console, demo.desk)
        return [*await judge(demo), *await judge_purchase(demo, shop, bought)]


def _settings(upstream: StandIn, secret: dict[str, str]) -> dict[str, str]:
    return {
        "RELIQ_SECRETS__SITE": secret["site"],
        "RELIQ_SECRETS__TELEGRAM": secret["telegram"],
        "RELIQ_SECRETS__GITHUB": GITHUB_SECRET,
        "RELIQ_TELEGRAM_TOKEN": "12345:demo",
        "RELIQ_TELEGRAM_API": upstream.address,
        "RELIQ_ALERT_CHAT_ID": ALERT_CHAT,
        "RELIQ_SITE_FORWARD_URL": f"{upstream.address}/crm",
        "RELIQ_RETRY_BASE": "1s",
        "RELIQ_POLL": "200ms",
        "RELIQ_LOG": "json",
    }


def _report(console: Console, checks: list[Check]) -> bool:
    table = Table("", "expected", "seen", title="Expectation → seen", title_justify="left")
    for check in checks:
        mark = "[green]✓[/green]" if check.agrees else "[red]✗[/red]"
        table.add_row(mark, check.expected, check.seen)
    console.print()
    console.print(table)
    good = sum(check.agrees for check in checks)
    colour = "green" if good == len(checks) else "red"
    console.print(f"[{colour}]{good} of {len(checks)} as expected[/{colour}]\n")
    return good == len(checks)


def _next_steps(console: Console, stack: Stack | None) -> None:
    console.print("[bold]What to try next[/bold]")
    if stack is not None:
        console.print(f"  the receiver listens on {stack.receiver}, logs are in {stack.logs}")
        console.print(f"  export RELIQ_DATABASE_URL={stack.dsn}")
        console.print(f"  {RELIQ} failed · {RELIQ} show 4 · {RELIQ} retry 4 · {RELIQ} replay 3")
        console.print("  Ctrl-C ends it all")
        return
    for command, what in (
        (f"{RELIQ} demo --keep", "the same, left running for a look around"),
        ("make up", "a reliq of your own on this machine, until Ctrl-C"),
        (
            f"{RELIQ} scenario run scenarios",
            "kill a worker, break an upstream, get a verdict",
        ),
        ("make test", "every test, on a real Postgres"),
    ):
        console.print(f"  {command:<46} {what}")
