"""The settings, and the App they name; everything that is wrong with them at once."""

import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reliq.app import App
from reliq.domain.duration import format_duration
from reliq.domain.redact import scrub
from reliq.domain.signature import check_secrets
from reliq.domain.text import is_own, is_pythons
from reliq.errors import ConfigInvalid
from reliq.sealing import Sealing
from reliq.settings import ENV_FILE, PREFIX, Settings, load, read


def configured(env_file: Path = ENV_FILE) -> tuple[Settings, App]:
    """
    Load the settings and the App they name, ready to be started.

    Raises:
        ConfigInvalid: with every problem of the settings and of the App at once.

    """
    settings, _, app, found = examined(env_file)
    if settings is None or app is None or found:
        raise ConfigInvalid(found)
    return settings, app


def loaded(env_file: Path = ENV_FILE) -> Settings:
    """
    Load the settings alone, for what needs no App.

    Raises:
        ConfigInvalid: with every problem at once.

    """
    settings, found = load(env_file)
    if settings is None or found:
        raise ConfigInvalid(found)
    return settings


def examined(
    env_file: Path = ENV_FILE,
) -> tuple[Settings | None, Settings | None, App | None, list[str]]:
    """
    Load what can be loaded, and say everything that is wrong; never raises `ConfigInvalid`.

    Returns the settings and the second best (see `settings.read`), the App made with either,
    and the problems of all of them.
    """
    settings, second_best, found = read(env_file)
    app = None
    if (best := settings or second_best) is not None:
        try:
            app = load_app(best)
        except ConfigInvalid as error:
            more: Sequence[str] = error.problems
        else:
            more = problems(best, app)
        # What is wrong is missing in the second best, which is no second problem.
        told = {re.split("[= ]", problem)[0] for problem in found}
        found += [each for each in more if each.partition(" is missing")[0] not in told]
    return settings, second_best, app, list(dict.fromkeys(found))


def load_app(settings: Settings) -> App:
    """
    Import the App that the settings name as `module:name`.

    The name is an App, or a function that makes one from the settings. Modules are also
    looked for in the working directory.

    Raises:
        ConfigInvalid: there is no such App, or making it failed.

    """
    where = f"{PREFIX}APP={settings.app}"
    module_name, colon, name = settings.app.partition(":")
    if not (colon and module_name and name):
        raise ConfigInvalid([f"{where} is wrong: write it as module:name, as in shop.hooks:app"])
    found = _named(where, module_name, name)
    if callable(found):
        with _in_words(where, f"calling {name}"):
            found = found(settings)
    if not isinstance(found, App):
        raise ConfigInvalid([f"{where} is wrong: {name} is a {type(found).__name__}, not an App"])
    return found


def _named(where: str, module_name: str, name: str) -> object:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    with _in_words(where, f"importing {module_name}"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            # The module itself or a package above it, and not something that it imports.
            if f"{module_name}.".startswith(f"{error.name}."):
                problem = f"{where} is wrong: there is no module {error.name}"
                raise ConfigInvalid([problem]) from error
            raise
    if not hasattr(module, name):
        near = difflib.get_close_matches(name, dir(module), n=1)
        hint = f": did you mean {near[0]}?" if near else ""
        raise ConfigInvalid([f"{where} is wrong: {module_name} has no {name}{hint}"])
    found: object = getattr(module, name)
    return found


@contextmanager
def _in_words(where: str, what: str) -> Iterator[None]:
    try:
        yield
    except ConfigInvalid:
        raise
    except Exception as error:
        said = scrub(f"{type(error).__name__}: {error}")
        problem = f"{where} does not load: {what} raised {said}{_place(error)}"
        raise ConfigInvalid([problem]) from error


def _place(error: Exception) -> str:
    """Name the App's last line; of an App that is installed, or ours, the last that is no Python's."""
    lines = [
        line
        for line in traceback.extract_tb(error.__traceback__)
        if not is_pythons(line.filename) and line.filename != __file__
    ]
    if not lines:
        return ""
    last = [*lines, *(line for line in lines if is_own(line.filename))][-1]
    return f" ({last.filename}, line {last.lineno})"


def problems(settings: Settings, app: App) -> list[str]:
    """Say what the App needs and the settings lack: secrets of its sources, and its `needs`."""
    return [
        *_secret_problems(settings, app),
        *_need_problems(settings, app),
        *_schedule_problems(settings, app),
        *_sealing_problems(settings, app),
        *_keep_problems(settings, app),
    ]


def sealing(settings: Settings, app: App) -> Sealing | None:
    """
    Say how the App's secret fields are sealed; None where no keys are set.

    Raises:
        ConfigInvalid: the package that does it is not installed.

    """
    keys = settings.encryption_keys
    return None if keys is None else Sealing(keys.get_secret_value(), app.secrets)


def _sealing_problems(settings: Settings, app: App) -> list[str]:
    try:
        sealing(settings, app)
    except ConfigInvalid as error:
        return list(error.problems)
    return []


def _secret_problems(settings: Settings, app: App) -> list[str]:
    names = {source: source.lower().replace("-", "_") for source in app.sources}
    strays = settings.secrets.keys() - names.values()
    found = []
    for source, name in names.items():
        variable = f"{PREFIX}SECRETS__{name.upper()}"
        secret = settings.secret(source)
        if secret is None:
            near = difflib.get_close_matches(name, strays, n=1)
            hint = f" (you set {PREFIX}SECRETS__{near[0].upper()})" if near else ""
            found.append(f"{variable} is missing: the secret of the source {source!r}{hint}")
            continue
        try:
            check_secrets([secret.encode()])
        except ValueError as error:
            found.append(f"{variable} is wrong: {error}")
    return found


def _need_problems(settings: Settings, app: App) -> list[str]:
    found = []
    for need in app.needs:
        field = need.removeprefix(PREFIX).lower()
        variable = f"{PREFIX}{field.upper()}"
        if field not in Settings.model_fields:
            found.append(f"{PREFIX}APP={settings.app} needs {variable}, which is no setting")
        else:
            found += settings.missing(field)
    return found


def _schedule_problems(settings: Settings, app: App) -> list[str]:
    """Find slots that could run again because their key is forgotten before they are too old."""
    return [
        f"{PREFIX}KEEP_KEYS={format_duration(settings.keep_keys)} is too short: the schedule "
        f"{schedule.id!r} looks back {format_duration(schedule.age_max)}"
        for schedule in app.schedules
        if schedule.age_max >= settings.keep_keys
    ]


def _keep_problems(settings: Settings, app: App) -> list[str]:
    """Find dead letters that could be made anew when what they have done is forgotten."""
    return [
        f"{PREFIX}KEEP_EFFECTS={format_duration(settings.keep_effects)} must exceed "
        f"keep[{kind!r}] of the App, Keep({state}={format_duration(age)}): a job that is made anew "
        "must find what was done"
        for kind, keep in app.keep.items()
        for state, age in (("dead", keep.dead), ("ignored", keep.ignored))
        if age is not None and age >= settings.keep_effects
    ]
