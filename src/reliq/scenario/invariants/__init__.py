"""
One promise a file: add a module with an `INVARIANT` and it can be named in scenarios.

A check is a pure function of the history. It yields once for every thing it judged: None where
the promise was kept, a `Violation` where it was broken. One that yields nothing had nothing to
judge, and the run is vacuous. Golden histories for each are in `tests/unit/golden/`.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from reliq.scenario.invariants.kind import Invariant


@cache
def load() -> Mapping[str, Invariant]:
    """Find every invariant of this package, by name."""
    modules = [import_module(module.name) for module in iter_modules(__path__, f"{__name__}.")]
    found = [module.INVARIANT for module in modules if hasattr(module, "INVARIANT")]
    return {invariant.name: invariant for invariant in found}
