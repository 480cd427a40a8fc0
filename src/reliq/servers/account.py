"""
Whom Postgres runs as.

Postgres refuses to run as root. When root calls (a container, CI), it runs as the first account
of `postgres` and `nobody` that exists: initdb looks the name up, so a bare number will not do.
What that account can reach is asked by trying, since modes, lists and mounts all have a say.
"""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from reliq.errors import ServerFailed

ENVIRONMENT: Final = {"LC_ALL": "C", "PATH": "/usr/bin:/bin", "TZ": "UTC"}
"""All that our servers see of the environment: a stray PGDATA or PGOPTIONS changes nothing."""

_CANDIDATES: Final = ("postgres", "nobody")
_RUN_S: Final = 120


@dataclass(frozen=True, slots=True)
class Account:
    """A user and a group to switch to; None means that we stay who we are."""

    user: int | None = None
    group: int | None = None

    def run(
        self, *command: str | Path, cwd: Path = Path("/"), words: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, with `words` as its input; output is captured together."""
        return subprocess.run(  # noqa: S603 (our own commands)
            command,
            check=False,
            input=words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_RUN_S,
            cwd=cwd,
            env=ENVIRONMENT,
            user=self.user,
            group=self.group,
            extra_groups=None if self.user is None else [],
        )

    def spawn(self, *command: str | Path, cwd: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """
        Start a program that writes to `log`.

        It gets a session of its own, so that Ctrl-C in the terminal reaches only us: we decide
        when it ends.
        """
        return subprocess.Popen(  # noqa: S603 (our own commands)
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=cwd,
            env=ENVIRONMENT,
            start_new_session=True,
            user=self.user,
            group=self.group,
            extra_groups=None if self.user is None else [],
        )

    def may_enter(self, folder: Path) -> bool:
        """Try whether the account can change into a folder."""
        return self.run("/bin/sh", "-c", 'cd "$1"', "sh", folder).returncode == 0

    def may_run(self, program: Path) -> bool:
        """Try whether the account can start a program (and find its libraries)."""
        try:
            return self.run(program, "--version").returncode == 0
        except OSError:
            return False

    def own(self, folder: Path) -> None:
        """Give a folder to the account."""
        if self.user is not None and self.group is not None:
            os.chown(folder, self.user, self.group)


def unprivileged() -> Account:
    """Choose the account: ours, unless we are root."""
    if os.geteuid() != 0:
        return Account()
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise ServerFailed(
        "Postgres does not run as root, and there is no account `postgres` or `nobody`: add one"
    )
