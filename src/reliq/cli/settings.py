"""Settings on a screen: every one, with where it comes from, and without secrets."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from reliq.domain.duration import format_duration
from reliq.domain.redact import MASK
from reliq.settings import ENV_FILE, NESTED, Settings, environment, variable

_WITHOUT_PASSWORD: Final = re.compile(
    r"postgres(?:ql)?://(?:[^@/?#]*@)?([\w.,-]*|\[[0-9a-f:]+\])(:\d+)?/([^@/?#]*)(?:\?[^@]*)?"
)


def described(settings: Settings, env_file: Path = ENV_FILE) -> list[tuple[str, str, str]]:
    """List every setting as (name, value, where from), secrets masked."""
    env = environment(env_file)
    rows = []
    for field in Settings.model_fields:
        name = variable(field)
        if field == "secrets":
            rows += [
                (key, MASK, origin)
                for key, (value, origin) in env.items()
                if value and (key == name or key.startswith(f"{name}{NESTED}"))
            ]
            continue
        value, origin = env.get(name, ("", ""))
        shown = (
            without_password(settings.dsn)
            if field == "database_url"
            else _masked(getattr(settings, field))
        )
        rows.append((name, shown, origin if value else "default"))
    return rows


def without_password(dsn: str) -> str:
    """Show where a database is and nothing else; a mask where that cannot be told apart."""
    found = _WITHOUT_PASSWORD.fullmatch(dsn)
    return f"postgresql://…@{found[1]}{found[2] or ''}/{found[3]}" if found else MASK


def _masked(value: object) -> str:
    match value:
        case SecretStr():
            return MASK
        case timedelta():
            return format_duration(value)
        case None:
            return "-"
        case _:
            return str(value)
