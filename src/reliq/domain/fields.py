"""
Values that people compose an App of: what cannot work is refused where it is made, in words.

Python takes anything for anything, and what was wrong with a field showed when the first job came.
"""

import inspect
from collections.abc import Collection
from datetime import timedelta
from functools import partial
from types import NoneType
from typing import Final, Literal

from reliq.domain.duration import LONGEST

Sort = Literal["coroutine", "generator", "async generator", "other", "none"]
_PLAIN: Final[tuple[Sort, ...]] = ("other",)


def check_field(where: str, value: object, wanted: str, *, is_right: bool) -> None:
    """
    Refuse a value; `where` names whose it is and the field, `wanted` what to write.

    Raises:
        ValueError: it is not right.

    """
    if not is_right:
        shown = str(value) if isinstance(value, timedelta) else repr(value)
        raise ValueError(f"{where}={shown}: use {wanted}")


def check_type(where: str, value: object, *types: type) -> None:
    """Refuse what is of none of these types, in their names."""
    wanted = " or ".join(each.__name__ for each in types if each is not NoneType)
    check_field(where, value, wanted, is_right=isinstance(value, types))


def check_duration(where: str, value: object, most: timedelta = LONGEST) -> None:
    """Refuse what is no length of time above 0."""
    is_right = isinstance(value, timedelta) and timedelta(0) < value <= most
    check_field(where, value, f"a timedelta above 0 and up to {most.days} days", is_right=is_right)


def check_whole(where: str, value: object, first: int, last: int) -> None:
    """Refuse what is no whole number of this range; True is none."""
    is_right = isinstance(value, int) and not isinstance(value, bool) and first <= value <= last
    check_field(where, value, f"a whole number from {first} to {last}", is_right=is_right)


def check_share(where: str, value: object) -> None:
    """Refuse what is no share of a whole, below 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_right = is_number and 0 <= value < 1  # type: ignore[operator]
    check_field(where, value, "a share, from 0 to below 1", is_right=is_right)


def check_texts(where: str, value: object) -> None:
    """Refuse what is no collection of texts; a text alone would be one of its letters."""
    is_right = isinstance(value, Collection) and not isinstance(value, str | bytes)
    is_right = is_right and all(isinstance(each, str) for each in value)  # type: ignore[attr-defined]
    check_field(where, value, "a collection of texts", is_right=is_right)


def check_awaited(where: str, value: object) -> None:
    """Refuse what is no coroutine function; a lambda cannot be called one, and may do as one."""
    function = value
    while isinstance(function, partial):
        function = function.func
    is_lambda = callable(function) and getattr(function, "__name__", "") == "<lambda>"
    wanted = "a coroutine function (async def), or a lambda that calls one"
    check_field(where, value, wanted, is_right=is_coroutine(value) or is_lambda)


def check_called(where: str, value: object, sorts: Collection[Sort] = _PLAIN) -> None:
    """Refuse what is no function, or gives when called what nobody would await or run."""
    kind = "def or async def" if "coroutine" in sorts else "def, for nobody awaits it"
    wanted = f"a function ({kind})" + ("" if "generator" in sorts else " without yield")
    check_field(where, value, wanted, is_right=sort_of(value) in sorts)


def is_coroutine(function: object) -> bool:
    """Tell whether it is a coroutine function, under a decorator too, or called like one."""
    return sort_of(function) == "coroutine" or (
        callable(function) and sort_of(inspect.unwrap(function)) == "coroutine"
    )


def sort_of(function: object) -> Sort:
    """Tell what a function, or an object that is called like one, gives when it is called."""
    if not callable(function) or isinstance(function, type):
        return "none"
    for each in (function, getattr(function, "__call__", None)):  # noqa: B004 - of instances
        if inspect.iscoroutinefunction(each):
            return "coroutine"
        if inspect.isasyncgenfunction(each):
            return "async generator"
        if inspect.isgeneratorfunction(each):
            return "generator"
    return "other"
