"""Evaluate conditions and templates.

A subset of Python's expressions, evaluated by simpleeval: names, constants, operators, comparisons, lists, subscripts,
`a.b` for the key `b` of a mapping, and a few functions. Python's own objects cannot be reached. A template is a text
with `{{ expression }}` in it; one that is a single expression has its value, of any type.
"""

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from simpleeval import InvalidExpression, SimpleEval, safe_add, safe_mult

MAX_TEXT: Final = 1 << 20
_PART: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ROOTS: Final = ("inputs", "steps", "places")


class ExpressionError(Exception):
    """An expression cannot be parsed or evaluated."""


class NotKnownYet(Exception):
    """An expression needs the output of `step`, which has not run yet."""

    def __init__(self, step: str) -> None:
        super().__init__(f"what step {step} returns is known only after it has run")
        self.step = step


class Pending:
    """The outputs of a step that has not run yet, when a plan is made."""

    def __init__(self, step: str) -> None:
        self.step = step


def evaluate(expression: str, names: Mapping[str, object]) -> Any:
    """Return the value of an expression. Raises ExpressionError, and NotKnownYet when a plan is made."""
    try:
        return _Evaluator(names).eval(expression, previously_parsed=_parsed(expression))
    except NotKnownYet:
        raise
    except (InvalidExpression, ValueError, TypeError, KeyError, IndexError, ArithmeticError, RecursionError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise ExpressionError(f"{expression.strip()!r} cannot be evaluated: {reason}") from error


def render(template: str, names: Mapping[str, object]) -> Any:
    """Return a template with the values of its expressions. Raises as `evaluate` does."""
    whole = _PART.fullmatch(template)
    if whole is not None and "{{" not in whole[1]:
        value = evaluate(whole[1], names)
        return dict(value) if isinstance(value, Mapping) else value
    text = _PART.sub(lambda match: _as_text(evaluate(match[1], names)), template)
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"a template gives {len(text):,} characters; accepted: at most {MAX_TEXT:,}")
    return text


def render_all(value: Any, names: Mapping[str, object]) -> Any:
    """Return a JSON value with all of its templates rendered."""
    return with_texts(value, lambda template: render(template, names))


def with_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """Return a JSON value with `change(text)` in place of each text. Keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: with_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_texts(item, change) for item in value]
    return value


def names_in(expression: str) -> list[tuple[str, str]]:
    """Return what an expression refers to, such as ("inputs", "model"). Raises ExpressionError."""
    references = []
    for node in ast.walk(_parsed(expression)):
        if isinstance(node, ast.Name) and node.id not in (*_ROOTS, *_FUNCTIONS, "true", "false", "null"):
            accepted = f"inputs.NAME, steps.ID.NAME, places.NAME, and the functions {', '.join(_FUNCTIONS)}"
            raise ExpressionError(f"{expression.strip()!r} has the unknown name {node.id!r}; accepted: {accepted}")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _ROOTS:
            references.append((node.value.id, node.attr))
    return references


def names_in_template(template: str) -> list[tuple[str, str]]:
    """Return what a template refers to. Raises ExpressionError."""
    return [name for match in _PART.finditer(template) for name in names_in(match[1])]


class _Evaluator(SimpleEval):  # type: ignore[misc]
    # fewer kinds of nodes, no attributes of objects; lists are added
    nodes: dict[type[ast.AST], Callable[..., Any]]

    def __init__(self, names: Mapping[str, object]) -> None:
        super().__init__(
            operators=_OPERATORS,
            functions=dict(_FUNCTIONS),
            names={**names, "true": True, "false": False, "null": None},
        )
        self.nodes = {kind: handler for kind, handler in self.nodes.items() if kind in _NODES}
        self.nodes[ast.List] = lambda node: [self._eval(item) for item in node.elts]
        self.nodes[ast.Attribute] = self._key
        self.nodes[ast.Subscript] = self._item

    def _key(self, node: ast.Attribute) -> Any:
        return _get(self._eval(node.value), node.attr)

    def _item(self, node: ast.Subscript) -> Any:
        return _get(self._eval(node.value), self._eval(node.slice))


def _get(value: Any, key: Any) -> Any:
    if isinstance(value, Pending):
        raise NotKnownYet(value.step)
    if isinstance(value, Mapping) or (isinstance(value, list | str) and isinstance(key, int | slice)):
        return value[key]
    raise ExpressionError(f"{key!r} is asked of {json.dumps(value, default=str)[:80]}, which has no keys")


@cache
def _parsed(expression: str) -> ast.expr:
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"{expression.strip()!r} is no expression: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and type(node) not in _NODES:
            raise ExpressionError(f"{expression.strip()!r} has a {type(node).__name__}, which is not accepted")
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS):
            accepted = ", ".join(_FUNCTIONS)
            raise ExpressionError(f"{expression.strip()!r} calls what is no function here; accepted: {accepted}")
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            raise ExpressionError(f"{expression.strip()!r} has {node.attr}, which is no key")
        if isinstance(node, ast.Call) and node.keywords:
            raise ExpressionError(f"{expression.strip()!r} calls a function with named arguments")
    return tree


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=dict)


def _numbers(action: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def checked(left: Any, right: Any) -> Any:
        if isinstance(left, int | float) and isinstance(right, int | float):
            return action(left, right)
        raise ExpressionError("this operator is for numbers only")

    return checked


def _contains(item: Any, container: Any) -> bool:
    return bool(operator.contains(container, item))


def _default(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _basename(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "len": len,
    "min": min,
    "max": max,
    "round": round,
    "int": int,
    "float": float,
    "str": _as_text,
    "lower": lambda text: str(text).lower(),
    "starts_with": lambda text, start: str(text).startswith(str(start)),
    "ends_with": lambda text, end: str(text).endswith(str(end)),
    "default": _default,
    "basename": _basename,
}
_OPERATORS: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: safe_add,
    ast.Sub: _numbers(operator.sub),
    ast.Mult: _numbers(safe_mult),
    ast.Div: _numbers(operator.truediv),
    ast.FloorDiv: _numbers(operator.floordiv),
    ast.Mod: _numbers(operator.mod),
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.Lt: operator.lt,
    ast.GtE: operator.ge,
    ast.LtE: operator.le,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.In: _contains,
    ast.NotIn: lambda item, container: not _contains(item, container),
}
_NODES: Final = frozenset(
    {
        ast.Name,
        ast.UnaryOp,
        ast.BinOp,
        ast.BoolOp,
        ast.Compare,
        ast.IfExp,
        ast.Call,
        ast.Subscript,
        ast.Attribute,
        ast.Slice,
        ast.Constant,
        ast.List,
    }
)
