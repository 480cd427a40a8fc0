"""
A folder of data: made whole or not at all, reused, never shared by two servers.

    <folder>/cluster         what Postgres calls its data directory
    <folder>/cluster.*       one being made; what a killed initdb left is removed by the next
    <folder>/cluster.lock    held while one is being made
    <folder>/postgres.log
"""

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reliq.errors import ServerFailed
from reliq.servers.account import Account
from reliq.servers.processes import processes

SUPERUSER: Final = "reliq"
DATABASE: Final = "reliq"

STATE: Final = Path("/var/lib/reliq")
"""Where data go that their account could not reach where they were wanted; only root gets here."""


@dataclass(frozen=True, slots=True)
class LockFile:
    """What a postmaster writes about itself into `postmaster.pid`."""

    pid: int
    port: str
    status: str


def data_folder(wanted: Path, account: Account) -> Path:
    """
    Make the folder, or one elsewhere where `account` cannot reach it.

    The other place is named after the wanted one, so that the next start finds its data. It is
    not below /tmp or /var/tmp, which are swept by age, file by file. The folder stays ours, only
    the cluster in it is the account's: we write a log beside it, and a link laid there by the
    account would lead our pen.
    """
    wanted = wanted.resolve()
    if account.user is None:
        _make(wanted)
        return wanted
    digest = hashlib.sha256(bytes(wanted)).hexdigest()[:12]
    if account.may_enter(next(path for path in (wanted, *wanted.parents) if path.exists())):
        _make(wanted)
        if account.may_enter(wanted):
            return wanted
    _make(STATE)
    elsewhere = STATE / f"{wanted.name}-{digest}"
    _make(elsewhere)
    if not account.may_enter(elsewhere):
        raise ServerFailed(f"user {account.user} can enter neither {wanted} nor {elsewhere}")
    return elsewhere


def prepare_cluster(folder: Path, programs: Path, account: Account) -> Path:
    """
    Return the folder's cluster, made now if there is none.

    Raises ServerFailed when initdb fails (its words are quoted), and when a live server has the
    cluster.
    """
    cluster = folder / "cluster"
    with _locked(folder / "cluster.lock"):
        if not (cluster / "PG_VERSION").exists():
            for leftover in folder.glob("cluster.*/"):
                shutil.rmtree(leftover, ignore_errors=True)
            draft = Path(tempfile.mkdtemp(prefix="cluster.", dir=folder))
            try:
                account.own(draft)
                _initialise(draft, programs, account)
                draft.rename(cluster)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    _refuse_live(cluster)
    return cluster


def read_lock_file(cluster: Path) -> LockFile | None:
    """Read `postmaster.pid`; None if there is none, or if it is half written."""
    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
        return LockFile(int(lines[0]), lines[3], lines[7].strip() if len(lines) > 7 else "")  # noqa: PLR2004
    except (FileNotFoundError, IndexError, ValueError):
        return None


def _make(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)


def _initialise(draft: Path, programs: Path, account: Account) -> None:
    # Not synced to disk: a machine that loses power in the next seconds loses a new, empty
    # cluster. The database is made by the server's single-user mode, so no client is needed.
    options = ["-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
    made = account.run(programs / "initdb", "-D", draft, "-U", SUPERUSER, *options, cwd=draft)
    if made.returncode == 0:
        made = account.run(
            *(programs / "postgres", "--single", "-F", "-D", draft, "postgres"),
            cwd=draft,
            words=f"create database {DATABASE};\n",
        )
    if made.returncode != 0 or "ERROR:" in made.stdout:
        raise ServerFailed(f"initdb failed in {draft.parent}:\n{made.stdout.strip()}")


def _refuse_live(cluster: Path) -> None:
    # Postgres itself recovers from a lock file whose process is gone, but not from one whose
    # number went to another process (in a container after every restart) or whose process was
    # never reaped. Orphans of a dead postmaster are noticed by their shared memory.
    lock = read_lock_file(cluster)
    holder = processes().get(lock.pid) if lock else None
    if lock is None or holder is None:
        return
    if holder.state != "Z" and "postgres" in holder.name:
        raise ServerFailed(
            f"a server runs on {cluster} already (pid {lock.pid}, port {lock.port}): "
            "stop it, or use another folder"
        )
    (cluster / "postmaster.pid").unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
