"""
The harm that steps do, one kind a file: a new kind is a file here and a field of `Do`.

Each file has a function `harm`, an asynchronous context: entering does the harm and yields whom
or what it hit, leaving undoes it, as far as it can be undone.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from reliq.scenario.faults.kind import Bite, Scene

Harm = Callable[[Any, Scene], AbstractAsyncContextManager[Bite]]


@cache
def load() -> dict[str, Harm]:
    """Find every kind of harm of this package, by the name of its field in `Do`."""
    found = {}
    for module in iter_modules(__path__, f"{__name__}."):
        if (harm := getattr(import_module(module.name), "harm", None)) is not None:
            found[module.name.rpartition(".")[2]] = harm
    return found
