"""Render Jinja templates that are foreign code: for a limited time, and without making texts out of proportion.

Jinja's sandbox keeps a template from reaching objects that it was not given. It does not limit what a template
computes: `"a".ljust(10 ** 10)` takes ten gigabytes in one go. Here each operator, filter and method that can make more
than it was given is checked before it is carried out, all others are counted afterwards, and every pass through a loop
looks at the time. `registry.template_check` has a process of its own with limits of memory and time as well.
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

from registry.errors import ChatTemplateError

MOST_SECONDS: Final = 5.0
"""How long a template may compute for one prompt."""
MOST_ITEMS: Final = 1 << 23
"""How many characters or items a template may make with one operator, filter or method."""
MOST_BYTES: Final = 512 << 20
"""By how much the memory of the process may grow while a template is rendered."""
MOST_BITS: Final = 1 << 12
"""How large a number an operator of a template may make."""
MOST_NUMBER: Final = 1 << 20
"""The largest whole number that a method, or a filter in `_BY_NUMBER`, takes."""
MOST_INDENT: Final = 64
"""By how many characters JSON may be indented, and how long a text may be that is put at the ends of lines."""
_LOOK_EVERY: Final = 1 << 24
"""How many characters and bytes of items a template makes between two looks at the memory."""
_ITEM: Final = 16
"""How many bytes an item of a list takes, at least, with its share of the list."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_WIDE: Final = re.compile(r"%[^a-zA-Z%]*([0-9]{5}|\*)")
"""A format with `%` that asks for a great width, or takes it from an argument."""
_WIDE_FIELD: Final = re.compile(r"[0-9]{5}")
"""What a format with braces has in it where it asks for a great width."""
_BY_NUMBER: Final = frozenset(("batch", "center", "indent", "round", "slice", "truncate", "wordwrap"))
"""The filters that make as much as a number says."""


class TooMuch(ChatTemplateError):
    """A template takes too long, or makes something too large."""


class _BoundedCode(CodeGenerator):
    """Compiles templates so that each pass through a loop and each call of a macro looks at the time."""

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        """Add the look at the time to the code of a template."""
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
        """Write the code of the operator `~`."""
        self.write("environment.concatenated((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Renders templates within limits of time and size; what goes beyond them raises `TooMuch`.

    `filters` are those that templates have beside Jinja's own.
    """

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
        """Begin the time for what is rendered next. It is the time that this thread computes, not that it waits."""
        self._end = thread_time() + MOST_SECONDS
        self.begin_rendering()

    def begin_rendering(self) -> None:
        """Begin to count what is made. What an earlier rendering has made is no longer there."""
        self._made, self._before = 0, _resident_bytes()

    def look_at_the_time(self) -> None:
        """Raise `TooMuch` when the time is over."""
        if thread_time() > self._end:
            raise TooMuch(f"the model's chat template takes longer than {MOST_SECONDS:g} s")

    def shown(self, value: Any) -> Any:
        """Return a value whose text a template writes into its output."""
        if not isinstance(value, str):
            check_weight("its output", value)
        return value

    def output(self, parts: Iterable[str]) -> str:
        """Return the text that a template, a macro or a block has written in parts."""
        texts, size = list[str](), 0
        for part in parts:
            size += len(part)
            _check_size("its output", size)
            texts.append(part)
        return str(self._counted("its output", "".join(texts)))

    def concatenated(self, parts: Sequence[Any]) -> str:
        """Return what the operator `~` makes."""
        check_weight("~", parts)
        texts = [str(part) for part in parts]
        _check_size("~", sum(map(len, texts)))
        return str(self._counted("~", "".join(texts)))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return the result of an operator."""
        if _is_large(operator, left, right):
            raise _too_large(operator)
        return self._counted(operator, super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the result of a function, a method or a macro that a template calls."""
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        name = str(getattr(__obj, "__name__", "a call"))
        if isinstance(owner, str | bytes | int | float):
            args = _checked_method(name, owner, args, kwargs)
        return __self._counted(name, super().call(__context, __obj, *args, **kwargs))

    def _bounded(self, name: str, apply: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter that is checked before and counted afterwards."""

        @functools.wraps(apply)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            given = [one for one in args if not isinstance(one, Context | Environment | nodes.EvalContext)]
            _check_filter(name, given, kwargs)
            return self._counted(name, apply(*args, **kwargs))

        return bounded

    def _counted(self, name: str, made: Any) -> Any:
        """Return what was made, after it was counted. Now and then the memory is looked at, too."""
        self.look_at_the_time()
        if isinstance(made, str | bytes):
            self._made += len(made)
        elif isinstance(made, list | tuple | set | frozenset | dict):
            self._made += _ITEM * len(made)
        if self._made > _LOOK_EVERY:
            self._made = 0
            if _resident_bytes() - self._before > MOST_BYTES:
                raise _too_large(name)
        return made


def check_weight(name: str, value: Any) -> None:
    """Raise `TooMuch` where a value is too large as a text: a part that is in it several times counts each time."""
    size, rest = 0, [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str | bytes):
            size += len(one)
        elif isinstance(one, Mapping):
            size += len(one)
            rest += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            size += len(one)
            rest += one
        elif isinstance(one, Namespace):
            rest.append(dict(getattr(one, "_Namespace__attrs", {})))
        size += 1
        _check_size(name, size)


def _too_large(name: str) -> TooMuch:
    return TooMuch(f"the model's chat template makes something too large with {name!r}")


def _check_size(name: str, size: int) -> None:
    if size > MOST_ITEMS:
        raise _too_large(name)


def _is_large(operator: str, left: Any, right: Any) -> bool:
    """Return whether what an operator makes could be too large."""
    sizes = [len(one) for one in (left, right) if isinstance(one, str | bytes | Sequence)]
    numbers = [one for one in (left, right) if isinstance(one, int)]
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


def _is_wide(form: str | bytes, given: Any) -> bool:
    """Return whether a format with `%` makes something too large of what it is given. A name may stand in it often."""
    text = form if isinstance(form, str) else form.decode("latin-1")
    times = text.count("%") if isinstance(given, Mapping) else 1
    if times > MOST_NUMBER or _WIDE.search(text) is not None:
        return True
    check_weight("%", [given] * times)
    return False


def _check_numbers(name: str, given: Iterable[Any]) -> None:
    if any(isinstance(one, int) and abs(one) > MOST_NUMBER for one in given):
        raise _too_large(name)


def _checked_method(name: str, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a method of a text or a number, after they were checked. An iterator is read for that."""
    given = (*args, *kwargs.values())
    _check_numbers(name, given)
    if name == "join" and len(args) == 1:
        items = list(itertools.islice(args[0], MOST_NUMBER + 1))
        _check_size(name, MOST_ITEMS + 1 if len(items) > MOST_NUMBER else 0)
        sizes = sum(len(one) for one in items if isinstance(one, str | bytes))
        _check_size(name, sizes + len(owner) * len(items))
        return (items,)
    if not isinstance(owner, str | bytes):
        return args
    match name:
        case "replace" if len(given) > 1:
            _check_replaced(name, owner, *given[:2])
        case "expandtabs":
            tab = next((one for one in given if isinstance(one, int)), 8)
            tabs = owner.count("\t") if isinstance(owner, str) else owner.count(b"\t")
            _check_size(name, len(owner) + tabs * max(tab, 0))
        case "translate":
            table = given[0] if given and isinstance(given[0], Mapping) else {}
            longest = max((len(one) for one in table.values() if isinstance(one, str)), default=1)
            _check_size(name, len(owner) * longest)
        case "format" | "format_map" if isinstance(owner, str):
            if _WIDE_FIELD.search(owner) is not None or owner.count("{") > MOST_NUMBER:
                raise _too_large(name)
            check_weight(name, [given] * owner.count("{"))
    return args


def _check_replaced(name: str, text: str | bytes, old: Any, new: Any) -> None:
    """Raise `TooMuch` where a text would become too large by having one text replaced by another."""
    if isinstance(text, str):
        times = text.count(str(old))
        _check_size(name, len(text) + times * len(str(new)))
    elif isinstance(old, bytes) and isinstance(new, bytes):
        _check_size(name, len(text) + text.count(old) * len(new))


def _check_filter(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise `TooMuch` where a filter would make something too large. The first argument is what it is applied to."""
    given = [*args, *kwargs.values()]
    check_weight(name, given)
    value, rest = (args[0], [*args[1:], *kwargs.values()]) if args else (None, given)
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
            width = max((_length(one) for one in rest), default=4)
            _check_size(name, len(str(value)) + (str(value).count("\n") + 1) * width)
        case "tojson":
            _check_indent(name, [one for some in rest for one in (some if isinstance(some, tuple | list) else [some])])
        case "wordwrap" | "urlize" | "truncate" | "batch":
            _check_indent(name, [one for one in rest if isinstance(one, str)])


def _check_indent(name: str, given: Iterable[Any]) -> None:
    if any(_length(one) > MOST_INDENT for one in given):
        raise _too_large(name)


def _length(indent: Any) -> int:
    """Return how many characters an indent has, which is given as a number or as a text."""
    return indent if isinstance(indent, int) else len(indent) if isinstance(indent, str) else 0


@pass_environment
def _join(environment: Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    """Join the texts of items, as Jinja's filter of this name does where nothing is escaped."""
    texts, size = list[str](), 0
    for one in value if attribute is None else map(make_attrgetter(environment, attribute), value):
        check_weight("join", one)
        texts.append(str(one))
        size += len(texts[-1]) + len(d)
        _check_size("join", size)
    return str(d).join(texts)


def _resident_bytes() -> int:
    """Return how much memory the process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE
