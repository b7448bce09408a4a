"""Parse tool calls whose arguments are written as XML, from a complete text. Pure.

Parameter values are unescaped text. A value ends at the first closing tag after which the call continues in its syntax,
with the next parameter or the end of the call. An ambiguous text is no call: a call with some of its arguments would do
harm, and asking the model again does not.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.engine.whole_calls import (
    Broken,
    WholeBroken,
    WholeCall,
    WholePart,
    WholeText,
    skip_space,
    start_of,
    unknown_tool,
)
from orchestrator.engine.xml_values import ABSENT, typed_value


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlForm:
    """The tags of a family of models.

    The first group matches the name of the tool or parameter, the group `kind` says whether a value is a text ("true").
    """

    opening: re.Pattern[str]  # the start of a call
    unfinished: re.Pattern[str]  # a text that may become the start of a call
    next_opening: re.Pattern[str]  # `opening` at the start of a line
    parameter: re.Pattern[str]  # the start of a parameter
    parameter_line: re.Pattern[str]  # `parameter` at the start of a line of a value
    value_end: str
    closing: re.Pattern[str]
    closers: re.Pattern[str]
    strips_line_breaks: bool  # a line break at each end of a value belongs to the tags

    def read(self, text: str, tools: Mapping[str, Mapping[str, Any]]) -> list[WholePart]:
        """Return the calls in a text that starts with one. `tools` maps tool names to JSON Schemas of arguments."""
        parts: list[WholePart] = []
        at = 0
        while at < len(text):
            body = _Body(text, self, at)
            try:
                parts.append(body.call(tools))
            except Broken as broken:
                return [*parts, WholeBroken(at, str(broken))]
            end = body.at
            opening = self.opening.match(text, end)
            following = None if opening else self.next_opening.search(text, end)
            next_at = skip_space(text, end) if opening else following.end() if following else len(text)
            between = text[end:next_at]
            if self.closers.search(between):
                return [WholeBroken(0, "closing tags follow its end, so its arguments may not be complete")]
            if between.strip():
                parts.append(WholeText(between))
            at = next_at
        return parts


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


# Qwen3-Coder, whose models often omit `<tool_call>`.
PARAMETERS: Final = _form(
    opening=r"(?:<tool_call>\s*)?<function=([^>\n]{1,512})>",
    unfinished=rf"<tool_call>\s*(?:{start_of('<function=')}|<function=[^>\n]{{0,512}})",
    parameter=r"<parameter=([^>\n]{1,512})>",
    value_end="</parameter>",
    closing=r"</function>\s*(?:</tool_call>|\Z|(?=<tool_call>|<function=))",
    closers="</parameter>|</function>|</tool_call>",
    strips_line_breaks=True,
)
# GLM 4.5 and later.
_PAIRS: Final = _form(
    opening=r"<tool_call>\s*([\w.-]{1,512})\s*(?=<arg_key>|</tool_call>)",
    unfinished=rf"<tool_call>\s*[\w.-]{{0,512}}\s*(?:{start_of('<arg_key>')}|{start_of('</tool_call>')})",
    parameter=r"<arg_key>([^<\n]{1,512})</arg_key>\s*<arg_value>",
    value_end="</arg_value>",
    closing="</tool_call>",
    closers="</arg_key>|</arg_value>|</tool_call>",
    strips_line_breaks=False,
)
# DeepSeek V3.2 and V4. `string` says whether a value is a text or JSON.
_DSML: Final = _form(
    opening=r'(?:<｜DSML｜(?:tool|function)_calls>\s*)?<｜DSML｜invoke name="([^"\n]{1,512})">',
    unfinished=r"<｜DSML｜(?:tool|function)_calls>\s*"
    rf"""(?:{start_of('<｜DSML｜invoke name="')}|<｜DSML｜invoke name="[^"\n]{{0,512}}"?)""",
    parameter=r'<｜DSML｜parameter name="([^"\n]{1,512})"(?: string="(?P<kind>true|false)")?>',
    value_end="</｜DSML｜parameter>",
    closing=r"</｜DSML｜invoke>\s*(?:</｜DSML｜(?:tool|function)_calls>|\Z|(?=<｜DSML｜invoke ))",
    closers="</｜DSML｜(?:parameter|invoke|tool_calls|function_calls)>",
    strips_line_breaks=False,
)
# By `CallSyntax.arguments`.
XML_FORMS: Final[Mapping[str, XmlForm]] = {"parameters": PARAMETERS, "pairs": _PAIRS, "dsml": _DSML}
# The start of a call of `PARAMETERS` without `<tool_call>`, and a text that may become one.
LONE_FUNCTION: Final = re.compile(r"<function=([^>\n]{1,512})>\s*(?:<parameter=|</function>)")
LONE_UNFINISHED: Final = re.compile(
    rf"(?:{start_of('<function=')}|<function=[^>\n]{{0,512}}"
    rf"|<function=[^>\n]{{1,512}}>\s*(?:{start_of('<parameter=')}|{start_of('</function>')}))\Z"
)
_ENDS_LINE: Final = re.compile(r"\s*(?:<|\Z)|[ \t]*\n")  # after a tag: the line ends or another tag starts
_MOST_INDENT: Final = 64  # the most blanks before a tag in its line


class _Body:
    def __init__(self, text: str, form: XmlForm, at: int) -> None:
        self.at = at  # the offset up to which the call has been read
        self._text = text
        self._form = form

    def call(self, tools: Mapping[str, Mapping[str, Any]]) -> WholeCall:
        text, form = self._text, self._form
        opening = form.opening.match(text, self.at)
        assert opening is not None, "the caller has found the start of a call here"
        name, self.at = opening[1].strip().strip("\"'"), opening.end()
        if name not in tools:
            raise Broken(unknown_tool(name, tools))
        arguments: dict[str, Any] = {}
        keys: set[str] = set()
        while (closing := form.closing.match(text, self.at)) is None:
            key, value = self._parameter(tools[name])
            if key in keys:
                raise Broken(f"the parameter {key!r:.80} occurs twice")
            keys.add(key)
            if value is not ABSENT:
                arguments[key] = value
        self.at = closing.end()
        try:
            return WholeCall(name, json.dumps(arguments, ensure_ascii=False))
        except RecursionError:
            raise Broken("its arguments are nested too deeply") from None

    def _parameter(self, schema: Mapping[str, Any]) -> tuple[str, Any]:
        opening = self._form.parameter.match(self._text, self.at)
        if opening is None:
            rest = self._text[self.at : self.at + 60].strip()
            raise Broken(f"{rest!r} is no parameter and no end of the call" if rest else "it is not complete")
        key, end = opening[1].strip(), self._value_end(opening.end())
        names = _parameter_names(schema)
        if names is not None and key not in names:
            raise Broken(f"there is no parameter {key!r:.80}; accepted: {', '.join(names) or 'none'}")
        if end is None:
            raise Broken(f"the parameter {key!r:.80} does not end")
        value = self._text[opening.end() : end]
        self.at = end + len(self._form.value_end)
        for inner in self._form.parameter_line.finditer(value):
            if names is None or inner[1].strip() in names:
                raise Broken(f"the parameter {inner[1].strip()!r:.80} begins before {key!r:.80} ends")
        if self._form.strips_line_breaks:
            value = value.removeprefix("\n").removesuffix("\n")
        if opening.groupdict().get("kind") == "true":
            return key, value
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
                raise Broken(f"{following!r} is no parameter and no end of the call")
            at = after
        return None

    def _begins_line(self, at: int) -> bool:
        return self._text[max(0, at - _MOST_INDENT) : at].rstrip(" \t").endswith("\n")


def _parameter_names(schema: Mapping[str, Any]) -> list[str] | None:
    # None: any name. A schema that does not mention additional properties allows none here, unlike JSON Schema.
    if "properties" not in schema or schema.get("additionalProperties") or "patternProperties" in schema:
        return None
    return list(schema["properties"])
