"""Render Jinja templates from untrusted model files, with limits on time and size.

Jinja's sandbox restricts objects, not computation: `"a".ljust(10 ** 10)` takes ten gigabytes. Here each operator,
filter and method that can produce more than its input is checked before it runs, all others are counted afterwards, and
every pass through a loop checks the time. `registry.template_check` adds a process with limits on memory and time.
"""

import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import thread_time
from typing import Any, Final

from jinja2 import Environment, nodes, pass_environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.filters import make_attrgetter
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from orchestrator.registry.errors import ChatTemplateError

MOST_SECONDS: Final = 5.0  # per prompt
MOST_ITEMS: Final = 1 << 23  # characters or items from one operator, filter or method
MOST_BYTES: Final = 512 << 20  # growth of the process during one rendering
MOST_BITS: Final = 1 << 12  # of a number from an operator
MOST_NUMBER: Final = 1 << 20  # the largest whole number for a method or a filter in `_BY_NUMBER`
MOST_INDENT: Final = 64  # characters of JSON indents and of text at line ends
_LOOK_EVERY: Final = 1 << 24  # characters and bytes of items between two checks of the memory
_ITEM: Final = 16  # least bytes of an item of a list, with its share of the list
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
# A `%` format with a great width, or with the width from an argument.
_WIDE: Final = re.compile(r"%[^a-zA-Z%]*([0-9]{5}|\*)")
_WIDE_FIELD: Final = re.compile(r"[0-9]{5}")  # a great width in a format with braces
# Filters whose output size is an argument.
_BY_NUMBER: Final = frozenset(("batch", "center", "indent", "round", "slice", "truncate", "wordwrap"))


class TooMuch(ChatTemplateError):
    """A template takes too long, or makes something too large."""


class _BoundedCode(CodeGenerator):
    # Compiles a check of the time into each pass through a loop and each call of a macro.
    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        bodies = [
            *(loop.body for loop in node.find_all(nodes.For)),
            *(macro.body for macro in node.find_all(nodes.Macro)),
            *(call.body for call in node.find_all(nodes.CallBlock)),
        ]
        for body in bodies:
            look = nodes.Call(nodes.EnvironmentAttribute("look_at_the_time"), [], [], None, None)
            body.insert(0, nodes.ExprStmt(look, lineno=node.lineno))
        super().visit_Template(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concatenated((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Renders templates within limits of time and size; then it raises `TooMuch`. `filters` extend Jinja's own."""

    code_generator_class = _BoundedCode
    intercepted_binops = frozenset(("*", "**", "+", "%"))

    def __init__(self, filters: Mapping[str, Callable[..., Any]], **options: Any) -> None:
        self.begin()
        super().__init__(finalize=self.shown, **options)
        self.globals.pop("lipsum")
        own = {**self.filters, "join": _join, **filters}
        self.filters = {name: self._bounded(name, apply) for name, apply in own.items()}
        self.concat = self.output  # type: ignore[method-assign]

    def begin(self) -> None:
        """Start the time limit, in CPU time of this thread."""
        self._end = thread_time() + MOST_SECONDS
        self.begin_rendering()

    def begin_rendering(self) -> None:
        """Reset the size count: the results of an earlier rendering are gone."""
        self._made, self._before = 0, _resident_bytes()

    def look_at_the_time(self) -> None:
        """Raise `TooMuch` if the time is over."""
        if thread_time() > self._end:
            raise TooMuch(f"the model's chat template takes longer than {MOST_SECONDS:g} s")

    def shown(self, value: Any) -> Any:
        if not isinstance(value, str):
            check_weight("its output", value)
        return value

    def output(self, parts: Iterable[str]) -> str:
        texts, size = list[str](), 0
        for part in parts:
            size += len(part)
            _check_size("its output", size)
            texts.append(part)
        return str(self._counted("its output", "".join(texts)))

    def concatenated(self, parts: Sequence[Any]) -> str:
        check_weight("~", parts)
        texts = [str(part) for part in parts]
        _check_size("~", sum(map(len, texts)))
        return str(self._counted("~", "".join(texts)))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if _is_large(operator, left, right):
            raise _too_large(operator)
        return self._counted(operator, super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        name = str(getattr(__obj, "__name__", "a call"))
        if isinstance(owner, str | bytes | int | float):
            args = _checked_method(name, owner, args, kwargs)
        return __self._counted(name, super().call(__context, __obj, *args, **kwargs))

    def _bounded(self, name: str, apply: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(apply)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            values = [value for value in args if not isinstance(value, Context | Environment | nodes.EvalContext)]
            _check_filter(name, values, kwargs)
            return self._counted(name, apply(*args, **kwargs))

        return bounded

    def _counted(self, name: str, result: Any) -> Any:
        self.look_at_the_time()
        if isinstance(result, str | bytes):
            self._made += len(result)
        elif isinstance(result, list | tuple | set | frozenset | dict):
            self._made += _ITEM * len(result)
        if self._made > _LOOK_EVERY:
            self._made = 0
            if _resident_bytes() - self._before > MOST_BYTES:
                raise _too_large(name)
        return result


def check_weight(name: str, value: Any) -> None:
    """Raise `TooMuch` if a value is too large as text. A part counts as often as it occurs."""
    size, rest = 0, [value]
    while rest:
        part = rest.pop()
        if isinstance(part, str | bytes):
            size += len(part)
        elif isinstance(part, Mapping):
            size += len(part)
            rest += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            size += len(part)
            rest += part
        elif isinstance(part, Namespace):
            rest.append(dict(getattr(part, "_Namespace__attrs", {})))
        size += 1
        _check_size(name, size)


def _too_large(name: str) -> TooMuch:
    return TooMuch(f"the model's chat template makes something too large with {name!r}")


def _check_size(name: str, size: int) -> None:
    if size > MOST_ITEMS:
        raise _too_large(name)


def _is_large(operator: str, left: Any, right: Any) -> bool:
    sizes = [len(operand) for operand in (left, right) if isinstance(operand, str | bytes | Sequence)]
    numbers = [operand for operand in (left, right) if isinstance(operand, int)]
    if operator == "%":
        return isinstance(left, str | bytes) and _is_wide(left, right)
    if operator == "+":
        return sum(sizes) > MOST_ITEMS
    if operator == "*" and sizes:
        return sum(sizes) * max(numbers, default=0) > MOST_ITEMS
    if len(numbers) == 2:
        bits = numbers[0].bit_length()
        return (bits * abs(numbers[1]) if operator == "**" else bits + numbers[1].bit_length()) > MOST_BITS
    return False


def _is_wide(form: str | bytes, arguments: Any) -> bool:
    text = form if isinstance(form, str) else form.decode("latin-1")
    times = text.count("%") if isinstance(arguments, Mapping) else 1  # a name may occur often
    if times > MOST_NUMBER or _WIDE.search(text) is not None:
        return True
    check_weight("%", [arguments] * times)
    return False


def _check_numbers(name: str, values: Iterable[Any]) -> None:
    if any(isinstance(value, int) and abs(value) > MOST_NUMBER for value in values):
        raise _too_large(name)


def _checked_method(name: str, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    # Checking an iterator consumes it, so the arguments are returned.
    inputs = (*args, *kwargs.values())
    _check_numbers(name, inputs)
    if name == "join" and len(args) == 1:
        items = list(itertools.islice(args[0], MOST_NUMBER + 1))
        _check_size(name, MOST_ITEMS + 1 if len(items) > MOST_NUMBER else 0)
        sizes = sum(len(item) for item in items if isinstance(item, str | bytes))
        _check_size(name, sizes + len(owner) * len(items))
        return (items,)
    if not isinstance(owner, str | bytes):
        return args
    match name:
        case "replace" if len(inputs) > 1:
            _check_replaced(name, owner, *inputs[:2])
        case "expandtabs":
            tab = next((value for value in inputs if isinstance(value, int)), 8)
            tabs = owner.count("\t") if isinstance(owner, str) else owner.count(b"\t")
            _check_size(name, len(owner) + tabs * max(tab, 0))
        case "translate":
            table = inputs[0] if inputs and isinstance(inputs[0], Mapping) else {}
            longest = max((len(text) for text in table.values() if isinstance(text, str)), default=1)
            _check_size(name, len(owner) * longest)
        case "format" | "format_map" if isinstance(owner, str):
            if _WIDE_FIELD.search(owner) is not None or owner.count("{") > MOST_NUMBER:
                raise _too_large(name)
            check_weight(name, [inputs] * owner.count("{"))
    return args


def _check_replaced(name: str, text: str | bytes, old: Any, new: Any) -> None:
    if isinstance(text, str):
        times = text.count(str(old))
        _check_size(name, len(text) + times * len(str(new)))
    elif isinstance(old, bytes) and isinstance(new, bytes):
        _check_size(name, len(text) + text.count(old) * len(new))


def _check_filter(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    inputs = [*args, *kwargs.values()]
    check_weight(name, inputs)
    # The first argument is the filter's input.
    value, rest = (args[0], [*args[1:], *kwargs.values()]) if args else (None, inputs)
    if name in _BY_NUMBER:
        _check_numbers(name, rest)
    match name:
        case "format":
            if _is_wide(str(value), kwargs or tuple(rest)):
                raise _too_large(name)
        case "replace":
            texts = {**dict(zip(("old", "new"), args[1:], strict=False)), **kwargs}
            _check_replaced(name, str(value), texts.get("old", ""), texts.get("new", ""))
        case "indent":
            width = max((_length(indent) for indent in rest), default=4)
            _check_size(name, len(str(value)) + (str(value).count("\n") + 1) * width)
        case "tojson":
            _check_indent(
                name, [part for option in rest for part in (option if isinstance(option, tuple | list) else [option])]
            )
        case "wordwrap" | "urlize" | "truncate" | "batch":
            _check_indent(name, [text for text in rest if isinstance(text, str)])


def _check_indent(name: str, indents: Iterable[Any]) -> None:
    if any(_length(indent) > MOST_INDENT for indent in indents):
        raise _too_large(name)


def _length(indent: Any) -> int:
    # Of an indent, which is a number or a text.
    return indent if isinstance(indent, int) else len(indent) if isinstance(indent, str) else 0


@pass_environment
def _join(environment: Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    # As Jinja's filter `join` without escaping.
    texts, size = list[str](), 0
    for item in value if attribute is None else map(make_attrgetter(environment, attribute), value):
        check_weight("join", item)
        texts.append(str(item))
        size += len(texts[-1]) + len(d)
        _check_size("join", size)
    return str(d).join(texts)


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE
