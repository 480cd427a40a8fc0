"""`reliq dev` with an App of one's own: what it prints can be copied, and asks for what runs."""

import os
import re
import shlex
import signal
import subprocess
import sys

import httpx
import pytest

from reliq.servers.loopback import free_port
from reliq.settings import environment

SHOP = """
from reliq import App, Hmac, NewJob, Source
from reliq.domain.signature import Token

def orders(delivery):
    return [NewJob(kind="order.paid", payload={"order": delivery.json()["id"]})]

def unread(delivery):
    return [NewJob(kind="order.paid", payload=delivery.json()["something else"])]

by_hmac = Hmac(header="X-Shop-Signature", prefix="v1=")
app = App(
    sources={
        "shop": Source(signature=by_hmac, route=orders),
        "site": Source(signature=Hmac(header="x-own"), route=orders),
        "with-token": Source(signature=Token(header="x-token"), route=orders),
        "other": Source(signature=by_hmac, route=unread),
    },
    handlers={"order.paid": lambda job: None, "alert": lambda job: None},
)
"""
GIVEN = {
    "RELIQ_APP": "shop:app", "RELIQ_SECRETS__SHOP": "dev", "RELIQ_SECRETS__OTHER": "x",
    "RELIQ_SECRETS__WITH_TOKEN": "it's $HOME",
}  # fmt: skip


@pytest.fixture
def said(tmp_path):
    """Start it where a file holds a secret, too; give what it prints until it is ready."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / ".env").write_text("RELIQ_SECRETS__SITE=sitesecret\nRELIQ_TELEGRAM_TOKEN=\n")
    clean = {name: value for name, value in os.environ.items() if name not in environment()}  # noqa: TID251
    with subprocess.Popen(
        [sys.executable, "-m", "reliq", "dev", "--port", str(free_port())],
        cwd=tmp_path, env=clean | GIVEN, stdout=subprocess.PIPE, text=True,
    ) as dev:  # fmt: skip
        lines = []
        for line in dev.stdout:
            lines.append(line)
            if line.startswith("Ctrl-C"):
                break
        yield "".join(lines)
        dev.send_signal(signal.SIGTERM)
        assert dev.wait(60) == 0


def test_what_it_prints_can_be_tried_and_asks_with_the_settings_that_it_runs_with(said, tmp_path):
    tries = [shlex.split(line) for line in re.findall(r"^try +(.+)$", said, re.MULTILINE)]
    assert [words[-1].rpartition("/")[2] for words in tries] == ["shop", "site", "with-token"]
    for curl, _, body, _, header, address in tries:
        assert curl == "curl"
        name, _, value = header.partition(": ")
        assert httpx.post(address, content=body, headers={name: value}).status_code == 202

    [doctor] = re.findall(r"^ +(set -a; .*doctor)$", said, re.MULTILINE)
    clean = {"PATH": os.environ["PATH"]}  # noqa: TID251
    asked = subprocess.run(
        ["/bin/sh", "-c", doctor],
        cwd=tmp_path,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (asked.returncode, asked.stderr) == (0, "")
    told = "set -a; . .reliq/dev.env; env"
    env = subprocess.check_output(["/bin/sh", "-c", told], cwd=tmp_path, env=clean, text=True)
    assert {f"{name}={value}" for name, value in GIVEN.items()} <= set(env.splitlines())
    assert "RELIQ_SECRETS__SITE=sitesecret\n" in env
    assert "RELIQ_TELEGRAM_TOKEN=12345:dev\n" in env, "what is given as nothing is not given"

    assert (tmp_path / ".reliq" / ".gitignore").read_text() == "*\n"
    assert (tmp_path / ".reliq" / "dev.env").stat().st_mode & 0o777 == 0o600
