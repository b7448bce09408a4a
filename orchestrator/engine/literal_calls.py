"""Parse tool calls whose arguments are literals of Python (LFM2) or of Gemma 4, from a complete text. Pure.

    <|tool_call_start|>[weather(city='Oslo', days=2), clock()]<|tool_call_end|>
    <|tool_call>call:weather{city:<|"|>Oslo<|"|>,days:2}<tool_call|>

Nothing is evaluated. A text in Gemma's notation is not escaped; it ends at the first `<|"|>`. As in XML, an ambiguous
text is no call.
"""

import json
import re
from collections.abc import Callable, Mapping
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

_QUOTE: Final = '<|"|>'
_NUMBER: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?(?![\w.])")
_WORD: Final = re.compile(r"[A-Za-z]+(?!\w)")
# Python's words and JSON's: chat templates write either, and so do models.
_WORDS: Final[Mapping[str, Any]] = {
    **{"True": True, "False": False, "None": None},
    **{"true": True, "false": False, "null": None},
}
_PYTHON_TEXT: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.S)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.S)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_KEPT: Final = "\\'\""  # escaped signs that stand for themselves
_PYTHON_NAME: Final = re.compile(r"[^\W\d]\w*")
_BARE_KEY: Final = re.compile(r"[^\s:{}\[\],<\"'][^:{}\[\],<\n]{0,511}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralForm:
    """How a family of models writes literals. The group of `opening` matches the name of a tool."""

    opening: re.Pattern[str]  # the start of the first call of a block, up to the sign that opens its arguments
    unfinished: re.Pattern[str]  # a text that may become `opening`
    next_opening: re.Pattern[str]  # `opening` at the start of a line
    next_call: re.Pattern[str]  # between the arguments of a call and those of the next one of its block
    closing: re.Pattern[str]  # after the arguments of the last call of a block
    closer: str
    close: str  # the sign that closes the arguments
    assign: str  # between an argument's name and its value
    key: re.Pattern[str]  # the name of an argument
    is_gemma: bool

    def read(self, text: str, tools: Mapping[str, Mapping[str, Any]]) -> list[WholePart]:
        """Return the calls in a text that starts with one. `tools` maps tool names to JSON Schemas of arguments."""
        parts: list[WholePart] = []
        at = 0
        while at < len(text):
            block = _Block(text, self, at)
            try:
                parts += block.calls(tools)
            except Broken as broken:
                return [*parts, WholeBroken(at, str(broken))]
            end = self._behind_echo(text, at, block.at)
            opening = self.opening.match(text, skip_space(text, end))
            following = None if opening else self.next_opening.search(text, end)
            next_at = opening.start() if opening else following.end() if following else len(text)
            between = text[end:next_at]
            if self.closer in between:
                return [WholeBroken(0, "closing marks follow its end, so its arguments may not be complete")]
            if between.strip():
                parts.append(WholeText(between))
            at = next_at
        return parts

    def _behind_echo(self, text: str, begun: int, end: int) -> int:
        # LFM2 sometimes repeats a block without the mark at its start.
        echo = text[text.index(">", begun) + 1 : end]
        while not self.is_gemma and echo.endswith(self.closer) and text.startswith(echo, at := skip_space(text, end)):
            end = at + len(echo)
        return end


def _form(
    opening: str,
    unfinished: str,
    *,
    next_call: str,
    closing: str,
    closer: str,
    close: str,
    assign: str,
    key: re.Pattern[str],
    is_gemma: bool,
) -> LiteralForm:
    return LiteralForm(
        opening=re.compile(opening),
        unfinished=re.compile(unfinished + r"\Z"),
        next_opening=re.compile(r"\n[ \t]*(?=" + opening + ")"),
        next_call=re.compile(next_call),
        closing=re.compile(closing),
        closer=closer,
        close=close,
        assign=assign,
        key=key,
        is_gemma=is_gemma,
    )


PYTHON: Final = _form(
    r"<\|tool_call_start\|>\s*\[\s*([\w.-]{1,512})\s*\(",
    r"<\|tool_call_start\|>\s*(?:\[\s*[\w.-]{0,512}\s*)?",
    next_call=r"\s*,\s*([\w.-]{1,512})\s*\(",
    closing=r"\s*,?\s*\]\s*(?:<\|tool_call_end\|>|\Z)",
    closer="<|tool_call_end|>",
    close=")",
    assign="=",
    key=_PYTHON_NAME,
    is_gemma=False,
)
_GEMMA: Final = _form(
    r"<\|tool_call>\s*call:\s*([\w.-]{1,512})\s*\{",
    rf"<\|tool_call>\s*(?:{start_of('call:')}|call:\s*[\w.-]{{0,512}}\s*)",
    next_call=r"(?!)",
    closing=r"\s*(?:<tool_call\|>|\Z)",
    closer="<tool_call|>",
    close="}",
    assign=":",
    key=_BARE_KEY,
    is_gemma=True,
)
# By `CallSyntax.arguments`.
LITERAL_FORMS: Final[Mapping[str, LiteralForm]] = {"gemma": _GEMMA, "python": PYTHON}


class _Block:
    # Reads the calls of one block. `at` is the offset up to which it has been read.

    def __init__(self, text: str, form: LiteralForm, at: int) -> None:
        self.at = at
        self._text = text
        self._form = form

    def calls(self, tools: Mapping[str, Mapping[str, Any]]) -> list[WholeCall]:
        calls: list[WholeCall] = []
        opening = self._form.opening.match(self._text, self.at)
        assert opening is not None, "the caller has found the start of a call here"
        while opening is not None:
            self.at = opening.end()
            calls.append(self._call(opening[1], tools))
            opening = self._form.next_call.match(self._text, self.at)
        closing = self._form.closing.match(self._text, self.at)
        if closing is None:
            raise self._unexpected("no end of the call")
        self.at = closing.end()
        return calls

    def _call(self, name: str, tools: Mapping[str, object]) -> WholeCall:
        if name not in tools:
            raise Broken(unknown_tool(name, tools))
        try:
            read_name = self._key if self._form.is_gemma else self._name
            arguments = self._members(self._form.close, self._form.assign, read_name)
            return WholeCall(name, json.dumps(arguments, ensure_ascii=False, allow_nan=False))
        except RecursionError:
            raise Broken("its arguments are nested too deeply") from None
        except ValueError:  # an infinite number, one with too many digits, or what is no Unicode
            raise Broken("its arguments cannot be written as JSON") from None

    def _members(self, close: str, assign: str, read_key: Callable[[], str]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not self._skip(close):
            if members:
                self._need(",")
                if self._skip(close):
                    break
            key = read_key()
            if key in members:
                raise Broken(f"{key!r:.80} occurs twice")
            self._need(assign)
            members[key] = self._value()
        return members

    def _items(self) -> list[Any]:
        items: list[Any] = []
        while not self._skip("]"):
            if items:
                self._need(",")
                if self._skip("]"):
                    break
            items.append(self._value())
        return items

    def _value(self) -> Any:
        if self._skip("{"):
            return self._members("}", ":", self._key)
        if self._skip("["):
            return self._items()
        if (text := self._string()) is not None:
            return text
        if (number := _NUMBER.match(self._text, self.at)) is not None:
            self.at = number.end()
            return float(number[0]) if number[1] is not None or number[2] else int(number[0])
        word = _WORD.match(self._text, self.at)
        if word is None or word[0] not in _WORDS:
            raise self._unexpected("no value")
        self.at = word.end()
        return _WORDS[word[0]]

    def _string(self) -> str | None:
        if not self._form.is_gemma:
            literal = _PYTHON_TEXT.match(self._text, self.at)
            if literal is None:
                return None
            self.at = literal.end()
            return _plain(literal[0][1:-1])
        if not self._text.startswith(_QUOTE, self.at):
            return None
        begin = self.at + len(_QUOTE)
        end = self._text.find(_QUOTE, begin)
        if end < 0:
            raise Broken("a text in its arguments does not end")
        self.at = end + len(_QUOTE)
        return self._text[begin:end]

    def _key(self) -> str:
        # The key of an object.
        key = self._string()
        if key is not None:
            return key
        return self._name() if self._form.is_gemma else self._refuse("no key")

    def _name(self) -> str:
        # The name of an argument; in Gemma's notation, the bare key of an object, too.
        name = self._form.key.match(self._text, self.at)
        if name is None:
            return self._refuse("no name of an argument and no end of the call")
        self.at = name.end()
        return name[0].strip()

    def _skip(self, sign: str) -> bool:
        self.at = skip_space(self._text, self.at)
        if not self._text.startswith(sign, self.at):
            return False
        self.at = skip_space(self._text, self.at + len(sign))
        return True

    def _need(self, sign: str) -> None:
        if not self._skip(sign):
            raise self._unexpected(f"no {sign!r}")

    def _refuse(self, why: str) -> str:
        raise self._unexpected(why)

    def _unexpected(self, why: str) -> Broken:
        rest = self._text[self.at : self.at + 60].strip()
        return Broken(f"{rest!r} is {why}" if rest else "it is not complete")


def _plain(literal: str) -> str:
    # Raises ValueError, for half of a surrogate pair or a number that is no character.
    text = _ESCAPE.sub(_unescaped, literal)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le") if "\\u" in literal else text


def _unescaped(match: re.Match[str]) -> str:
    # As in Python, an unknown escape keeps its backslash.
    code = match[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return code if code in _KEPT else _ESCAPED.get(code, match[0])
