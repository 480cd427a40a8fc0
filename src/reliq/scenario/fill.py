"""
Work `params` and `matrix` into a file: `${events * failures}`.

A text that is one expression becomes its value, with its type; inside a longer text the value is
written out. Expressions know the names of `params` and `matrix`, numbers, texts, `+ - * / // %`,
`min` and `max`, and nothing else.
"""

import ast
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

_EXPRESSION: Final = re.compile(r"\$\{([^{}]*)\}")
_OPERATORS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {"min": min, "max": max}


def cells(
    matrix: Mapping[str, list[Any]], exclude: list[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """List the cells of a matrix, the last dimension moving fastest; without one, a single cell."""
    every = (
        dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())
    )
    return [
        cell for cell in every if not any(out and out.items() <= cell.items() for out in exclude)
    ]


def fill(value: Any, names: Mapping[str, Any]) -> Any:
    """
    Replace every `${…}` in a part of the file.

    Raises:
        ValueError: an expression that cannot be worked out; the message says which and why.

    """
    match value:
        case str():
            if whole := _EXPRESSION.fullmatch(value):
                return evaluate(whole[1], names)
            return _EXPRESSION.sub(lambda found: str(evaluate(found[1], names)), value)
        case dict():
            return {key: fill(part, names) for key, part in value.items()}
        case list():
            return [fill(part, names) for part in value]
        case _:
            return value


def unfilled(
    value: Any, at: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """List the texts that hold expressions, each with its place."""
    match value:
        case str() if _EXPRESSION.search(value):
            yield at, value
        case dict():
            for key, part in value.items():
                yield from unfilled(part, (*at, key))
        case list():
            for n, part in enumerate(value):
                yield from unfilled(part, (*at, n))
        case _:
            pass


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Work out one expression; raises ValueError."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, names)
    except SyntaxError as error:
        raise ValueError(f"${{{text}}} is no expression") from error
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"${{{text}}} cannot be worked out: {error}") from error


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Name(id=name):
            raise ValueError(f"no param or matrix is named {name!r}: there are {', '.join(names)}")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(each, names) for each in arguments))
        case _:
            raise ValueError("only numbers, names, + - * / // %, min and max are known")
