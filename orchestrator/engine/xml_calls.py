"""Read calls of tools whose arguments are written as XML, once the whole text is there. Pure.

The value of a parameter is any text, and nothing in it is escaped. So it ends at the first closing tag after which the
call continues in its syntax: with the next parameter, or with the end of the call. What could be read in two ways is
no call: a call with a part of its arguments would do harm, and a model that is asked again does not.
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
    """A call of a tool. `arguments` are JSON. `at` is where it begins in the text, in characters."""

    at: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class XmlBroken:
    """What begins as a call at `at`, and is none. Nothing is read after it."""

    at: int
    problem: str


XmlPart: TypeAlias = XmlText | XmlCall | XmlBroken


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlForm:
    """The tags of a family of models."""

    opening: re.Pattern[str]
    """The start of a call; the group is the name of its tool."""
    unfinished: re.Pattern[str]
    """A text that may become the start of a call."""
    next_opening: re.Pattern[str]
    """The same at the start of a line."""
    parameter: re.Pattern[str]
    """The start of a parameter; the group is its name."""
    parameter_line: re.Pattern[str]
    """The same at the start of a line of a value; the group is its name."""
    value_end: str
    closing: re.Pattern[str]
    """The end of a call."""
    closers: re.Pattern[str]
    """Any closing tag of a call."""
    strips_line_breaks: bool
    """Whether a line break at each end of a value belongs to the tags."""


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
    """Return a pattern of everything that a text begins with, the empty text included."""
    pattern = ""
    for sign in reversed(text):
        pattern = f"(?:{re.escape(sign)}{pattern})?"
    return pattern


PARAMETERS: Final = _form(
    opening=r"(?:<tool_call>\s*)?<function=([^>\n]{1,512})>",
    unfinished=rf"<tool_call>\s*(?:{_start_of('<function=')}|<function=[^>\n]{{0,512}})",
    parameter=r"<parameter=([^>\n]{1,512})>",
    value_end="</parameter>",
    closing=r"</function>\s*(?:</tool_call>|\Z|(?=<tool_call>|<function=))",
    closers="</parameter>|</function>|</tool_call>",
    strips_line_breaks=True,
)
"""Qwen3-Coder, whose models often leave out `<tool_call>`."""
PAIRS: Final = _form(
    opening=r"<tool_call>\s*([\w.-]{1,512})\s*(?=<arg_key>|</tool_call>)",
    unfinished=rf"<tool_call>\s*[\w.-]{{0,512}}\s*(?:{_start_of('<arg_key>')}|{_start_of('</tool_call>')})",
    parameter=r"<arg_key>([^<\n]{1,512})</arg_key>\s*<arg_value>",
    value_end="</arg_value>",
    closing="</tool_call>",
    closers="</arg_key>|</arg_value>|</tool_call>",
    strips_line_breaks=False,
)
"""GLM 4.5 and later."""
LONE_FUNCTION: Final = re.compile(r"<function=([^>\n]{1,512})>\s*(?:<parameter=|</function>)")
"""The start of a call of `PARAMETERS` without `<tool_call>`."""
LONE_UNFINISHED: Final = re.compile(
    rf"(?:{_start_of('<function=')}|<function=[^>\n]{{0,512}}"
    rf"|<function=[^>\n]{{1,512}}>\s*(?:{_start_of('<parameter=')}|{_start_of('</function>')}))\Z"
)
"""A text that may become `LONE_FUNCTION`."""
_SPACE: Final = re.compile(r"\s*")
_ENDS_LINE: Final = re.compile(r"\s*(?:<|\Z)|[ \t]*\n")
"""What follows on a tag behind which its line ends, or another tag begins."""
_MOST_INDENT: Final = 64
"""How many blanks may stand before a tag in its line."""


def read_xml_calls(text: str, form: XmlForm, tools: Mapping[str, Mapping[str, Any]]) -> list[XmlPart]:
    """Return the calls in a text that begins with one. `tools` are the JSON Schemas of the arguments of all tools."""
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
    """This is no call. The text says why."""


class _Body:
    """Reads one call. `at` is the place up to which it was read."""

    def __init__(self, text: str, form: XmlForm, at: int) -> None:
        self.at = at
        self._text = text
        self._form = form
        self._begun = at

    def call(self, tools: Mapping[str, Mapping[str, Any]]) -> XmlCall:
        """Return the call. Raises _Broken."""
        text, form = self._text, self._form
        opening = form.opening.match(text, self.at)
        assert opening is not None, "the caller has found the start of a call here"
        name, self.at = opening[1].strip().strip("\"'"), opening.end()
        if name not in tools:
            raise _Broken(unknown_tool(name, tools))
        arguments: dict[str, Any] = {}
        seen: set[str] = set()
        while (closing := form.closing.match(text, self.at)) is None:
            key, value = self._parameter(tools[name])
            if key in seen:
                raise _Broken(f"the parameter {key!r:.80} occurs twice")
            seen.add(key)
            if value is not ABSENT:
                arguments[key] = value
        self.at = closing.end()
        try:
            return XmlCall(self._begun, name, json.dumps(arguments, ensure_ascii=False))
        except RecursionError:
            raise _Broken("its arguments are nested too deeply") from None

    def _parameter(self, schema: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the name and the value of the parameter that begins here. Raises _Broken."""
        found = self._form.parameter.match(self._text, self.at)
        if found is None:
            rest = self._text[self.at : self.at + 60].strip()
            raise _Broken(f"{rest!r} is no parameter and no end of the call" if rest else "it is not complete")
        key, end = found[1].strip(), self._value_end(found.end())
        names = _parameter_names(schema)
        if names is not None and key not in names:
            raise _Broken(f"there is no parameter {key!r:.80}; accepted: {', '.join(names) or 'none'}")
        if end is None:
            raise _Broken(f"the parameter {key!r:.80} does not end")
        value = self._text[found.end() : end]
        self.at = end + len(self._form.value_end)
        for inner in self._form.parameter_line.finditer(value):
            if names is None or inner[1].strip() in names:
                raise _Broken(f"the parameter {inner[1].strip()!r:.80} begins before {key!r:.80} ends")
        if self._form.strips_line_breaks:
            value = value.removeprefix("\n").removesuffix("\n")
        return key, typed_value(value, schema.get("properties", {}).get(key), schema)

    def _value_end(self, begin: int) -> int | None:
        """Return where the value ends that begins here; None if it does not. Raises _Broken."""
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
        """Return whether only blanks stand before a place in its line."""
        return self._text[max(0, at - _MOST_INDENT) : at].rstrip(" \t").endswith("\n")


def unknown_tool(name: str, tools: Mapping[str, object]) -> str:
    """Return what is wrong with a call of a tool that is not offered."""
    return f"there is no tool {name[:80]!r}; accepted: {', '.join(tools) or 'none'}"


def _parameter_names(schema: Mapping[str, Any]) -> list[str] | None:
    """Return the names that parameters may have; None for any. Without a word in the schema, no other is meant."""
    if "properties" not in schema or schema.get("additionalProperties") or "patternProperties" in schema:
        return None
    return list(schema["properties"])


def skip_space(text: str, at: int) -> int:
    """Return where the white space at a place ends."""
    found = _SPACE.match(text, at)
    assert found is not None, "the pattern matches nothing, too"
    return found.end()
