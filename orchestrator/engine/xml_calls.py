"""Parse tool calls whose arguments are written as XML, from a complete text. Pure.

Parameter values are unescaped text. A value ends at the first closing tag after which the call continues in its syntax,
with the next parameter or the end of the call. An ambiguous text is no call: a call with some of its arguments would do
harm, and asking the model again does not.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from orchestrator.engine.xml_values import ABSENT, typed_value


@dataclass(frozen=True, slots=True)
class XmlText:
    """The text between two calls, or after the last one."""

    text: str


@dataclass(frozen=True, slots=True)
class XmlCall:
    """`arguments` are JSON. `at` is the offset of the call in the text, in characters."""

    at: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class XmlBroken:
    """A malformed call at offset `at`. Nothing after it is parsed."""

    at: int
    problem: str


XmlPart: TypeAlias = XmlText | XmlCall | XmlBroken


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlForm:
    """The tags of a family of models. Groups match the name of the tool or parameter."""

    opening: re.Pattern[str]  # the start of a call
    unfinished: re.Pattern[str]  # a text that may become the start of a call
    next_opening: re.Pattern[str]  # `opening` at the start of a line
    parameter: re.Pattern[str]  # the start of a parameter
    parameter_line: re.Pattern[str]  # `parameter` at the start of a line of a value
    value_end: str
    closing: re.Pattern[str]
    closers: re.Pattern[str]
    strips_line_breaks: bool  # a line break at each end of a value belongs to the tags


def _form(
    opening: str,
    unfinished: str,
    parameter: str,
    value_end: str,
    closing: str,
    closers: str,
    *,
    strips_line_breaks: bool,
) -> XmlForm:
    return XmlForm(
        opening=re.compile(r"\s*" + opening),
        unfinished=re.compile(unfinished + r"\Z"),
        next_opening=re.compile(r"\n[ \t]*(?=" + opening + ")"),
        parameter=re.compile(r"\s*" + parameter),
        parameter_line=re.compile(r"^[ \t]*" + parameter, re.M),
        value_end=value_end,
        closing=re.compile(r"\s*" + closing),
        closers=re.compile(closers),
        strips_line_breaks=strips_line_breaks,
    )


def _start_of(text: str) -> str:
    pattern = ""  # of all prefixes of the text, including the empty one
    for sign in reversed(text):
        pattern = f"(?:{re.escape(sign)}{pattern})?"
    return pattern


# Qwen3-Coder, whose models often omit `<tool_call>`.
PARAMETERS: Final = _form(
    opening=r"(?:<tool_call>\s*)?<function=([^>\n]{1,512})>",
    unfinished=rf"<tool_call>\s*(?:{_start_of('<function=')}|<function=[^>\n]{{0,512}})",
    parameter=r"<parameter=([^>\n]{1,512})>",
    value_end="</parameter>",
    closing=r"</function>\s*(?:</tool_call>|\Z|(?=<tool_call>|<function=))",
    closers="</parameter>|</function>|</tool_call>",
    strips_line_breaks=True,
)
# GLM 4.5 and later.
PAIRS: Final = _form(
    opening=r"<tool_call>\s*([\w.-]{1,512})\s*(?=<arg_key>|</tool_call>)",
    unfinished=rf"<tool_call>\s*[\w.-]{{0,512}}\s*(?:{_start_of('<arg_key>')}|{_start_of('</tool_call>')})",
    parameter=r"<arg_key>([^<\n]{1,512})</arg_key>\s*<arg_value>",
    value_end="</arg_value>",
    closing="</tool_call>",
    closers="</arg_key>|</arg_value>|</tool_call>",
    strips_line_breaks=False,
)
# The start of a call of `PARAMETERS` without `<tool_call>`, and a text that may become one.
LONE_FUNCTION: Final = re.compile(r"<function=([^>\n]{1,512})>\s*(?:<parameter=|</function>)")
LONE_UNFINISHED: Final = re.compile(
    rf"(?:{_start_of('<function=')}|<function=[^>\n]{{0,512}}"
    rf"|<function=[^>\n]{{1,512}}>\s*(?:{_start_of('<parameter=')}|{_start_of('</function>')}))\Z"
)
_SPACE: Final = re.compile(r"\s*")
_ENDS_LINE: Final = re.compile(r"\s*(?:<|\Z)|[ \t]*\n")  # after a tag: the line ends or another tag starts
_MOST_INDENT: Final = 64  # the most blanks before a tag in its line


def read_xml_calls(text: str, form: XmlForm, tools: Mapping[str, Mapping[str, Any]]) -> list[XmlPart]:
    """Return the calls in a text that starts with one. `tools` maps tool names to JSON Schemas of their arguments."""
    parts: list[XmlPart] = []
    at = 0
    while at < len(text):
        body = _Body(text, form, at)
        try:
            parts.append(body.call(tools))
        except _Broken as broken:
            return [*parts, XmlBroken(at, str(broken))]
        end = body.at
        opening = form.opening.match(text, end)
        following = None if opening else form.next_opening.search(text, end)
        next_at = skip_space(text, end) if opening else following.end() if following else len(text)
        between = text[end:next_at]
        if form.closers.search(between):
            return [XmlBroken(0, "closing tags follow its end, so its arguments may not be complete")]
        if between.strip():
            parts.append(XmlText(between))
        at = next_at
    return parts


class _Broken(Exception):
    """This is no call. The message says why."""


class _Body:
    def __init__(self, text: str, form: XmlForm, at: int) -> None:
        self.at = at  # the offset up to which the call has been read
        self._text = text
        self._form = form
        self._begun = at

    def call(self, tools: Mapping[str, Mapping[str, Any]]) -> XmlCall:
        text, form = self._text, self._form
        opening = form.opening.match(text, self.at)
        assert opening is not None, "the caller has found the start of a call here"
        name, self.at = opening[1].strip().strip("\"'"), opening.end()
        if name not in tools:
            raise _Broken(unknown_tool(name, tools))
        arguments: dict[str, Any] = {}
        keys: set[str] = set()
        while (closing := form.closing.match(text, self.at)) is None:
            key, value = self._parameter(tools[name])
            if key in keys:
                raise _Broken(f"the parameter {key!r:.80} occurs twice")
            keys.add(key)
            if value is not ABSENT:
                arguments[key] = value
        self.at = closing.end()
        try:
            return XmlCall(self._begun, name, json.dumps(arguments, ensure_ascii=False))
        except RecursionError:
            raise _Broken("its arguments are nested too deeply") from None

    def _parameter(self, schema: Mapping[str, Any]) -> tuple[str, Any]:
        opening = self._form.parameter.match(self._text, self.at)
        if opening is None:
            rest = self._text[self.at : self.at + 60].strip()
            raise _Broken(f"{rest!r} is no parameter and no end of the call" if rest else "it is not complete")
        key, end = opening[1].strip(), self._value_end(opening.end())
        names = _parameter_names(schema)
        if names is not None and key not in names:
            raise _Broken(f"there is no parameter {key!r:.80}; accepted: {', '.join(names) or 'none'}")
        if end is None:
            raise _Broken(f"the parameter {key!r:.80} does not end")
        value = self._text[opening.end() : end]
        self.at = end + len(self._form.value_end)
        for inner in self._form.parameter_line.finditer(value):
            if names is None or inner[1].strip() in names:
                raise _Broken(f"the parameter {inner[1].strip()!r:.80} begins before {key!r:.80} ends")
        if self._form.strips_line_breaks:
            value = value.removeprefix("\n").removesuffix("\n")
        return key, typed_value(value, schema.get("properties", {}).get(key), schema)

    def _value_end(self, begin: int) -> int | None:
        text, form, at = self._text, self._form, begin
        in_lines = form.strips_line_breaks and text.startswith("\n", begin)
        while (at := text.find(form.value_end, at)) >= 0:
            after = at + len(form.value_end)
            if form.parameter.match(text, after) or form.closing.match(text, after):
                return at
            # A tag that ends no value is part of one only if it does not stand where the end of a value stands.
            if (not in_lines or self._begins_line(at)) and _ENDS_LINE.match(text, after):
                following = text[after : after + 60].strip()
                raise _Broken(f"{following!r} is no parameter and no end of the call")
            at = after
        return None

    def _begins_line(self, at: int) -> bool:
        return self._text[max(0, at - _MOST_INDENT) : at].rstrip(" \t").endswith("\n")


def unknown_tool(name: str, tools: Mapping[str, object]) -> str:
    """Return the problem of a call of a tool that is not offered."""
    return f"there is no tool {name[:80]!r}; accepted: {', '.join(tools) or 'none'}"


def _parameter_names(schema: Mapping[str, Any]) -> list[str] | None:
    # None: any name. A schema that does not mention additional properties allows none here, unlike JSON Schema.
    if "properties" not in schema or schema.get("additionalProperties") or "patternProperties" in schema:
        return None
    return list(schema["properties"])


def skip_space(text: str, at: int) -> int:
    """Return the offset of the end of the white space at a place."""
    space = _SPACE.match(text, at)
    assert space is not None, "the pattern matches nothing, too"
    return space.end()
