"""Read calls of tools from what a model writes, piece by piece, in the syntaxes of all families. Pure.

    text ──the begin of a call──▶ head ──name and arguments begin──▶ arguments ──their end──▶ rest ──▶ text, or a head
      ▲                            │
      └──it was none after all─────┘

A call begins with a mark (`<tool_call>`, `<|tool_call|>`, `<|python_tag|>`, `[TOOL_CALLS]`, `<function=`, those of
DeepSeek and of gpt-oss) or is bare JSON, alone, in a list, or in a fenced block, anywhere in the text. Behind a mark,
whatever is no call is a broken one.
Bare JSON is a call only if it names a tool that is offered, and else text like any other. Text that may become a call
is held back until that is known. What is read does not depend on how the text is cut into pieces.
"""

import ast
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the text around calls. White space between text and calls belongs to neither."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A call of a tool has begun, whose name is known. `index` counts the calls of one text from 0."""

    index: int
    name: str
    at: int
    """Where the call begins in the text, in characters, with its mark if it has one of its own."""
    as_json: bool = True
    """Whether the model writes the arguments as JSON, and not as XML, which is turned into JSON."""


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """A piece of the arguments, which are the JSON that the model writes."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    """A call is complete. Whether its arguments are JSON that its tool accepts has not been checked."""

    index: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallBroken:
    """The text has begun a call and goes on or ends in a way that makes none of it. Nothing is read after that."""

    index: int | None
    """The index of the call; None if it has not started."""
    at: int
    """Where the call begins in the text, in characters."""
    problem: str
    """What is wrong with it."""


CallEvent: TypeAlias = TextDelta | ToolCallStarted | ArgumentsDelta | ToolCallFinished | ToolCallBroken

_NAMES: Final = ("name", "tool", "tool_name", "function")
_ARGUMENTS: Final = ("arguments", "parameters", "args")
_OTHERS: Final = ("id", "type", "index", "tool_call_id")
_KEYS: Final = (*_NAMES, *_ARGUMENTS, *_OTHERS)
_MARKS: Final = {
    "<tool_call>": "</tool_call>",
    "<|tool_call|>": "<|/tool_call|>",
    "<|python_tag|>": "",
    "[TOOL_CALLS]": "",
    "<function=": "</function>",
    "<｜tool▁calls▁begin｜>": "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>": "<｜tool▁call▁end｜>",
    "<|channel|>commentary to=functions.": "<|call|>",
    "<|start|>assistant to=functions.": "<|call|>",
    "<|start|>assistant<|channel|>commentary to=functions.": "<|call|>",
}
"""What begins a call, and what ends it; empty where nothing does."""
_CALLS: Final = "<｜tool▁calls▁begin｜>"
"""The mark of several calls, each of which has the mark `_CALL` of its own."""
_CALL: Final = "<｜tool▁call▁begin｜>"
_TO_FUNCTION: Final = "to=functions."
"""The end of the marks of a message to a function."""
_FENCE: Final = "```"
_FENCED: Final = ("", "json", "tool_call", "tool_calls", "tool_code")
"""The words that may stand behind the fence of a block with calls."""
_MOST_HEAD: Final = 512
"""The most characters of a word in front of the arguments, such as the name."""
_CANDIDATE: Final = re.compile(r"[<\[{`]")
_SPACE: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"\w*")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_SCALAR: Final = re.compile(r'[^\s,}\]"{\[]+')
_NAMED: Final = re.compile(r"([\w.-]+)\s*(?:\[CALL_ID\]\s*\w*\s*)?(?:\[ARGS\])?\s*(?=\{)")
_SEPARATED: Final = re.compile(r"(?:function<｜tool▁sep｜>([\w.-]+)\s*```(?:json)?|([\w.-]+)<｜tool▁sep｜>)\s*(?=\{)")
_ADDRESSED: Final = re.compile(r"([\w.-]+)[^{]*?<\|message\|>\s*(?=\{)")
_PAIRS: Final = re.compile(r"([\w.-]+)\s*(?=<arg_key>|</tool_call>)")
_BARE_NAME: Final = re.compile(r"[\w.-]+\s*")
_PAIR: Final = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.S)
_PARAMETER: Final = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.S)
_BUILT_IN: Final = re.compile(r"\s*([\w-]+)\.call\(", re.S)
_SIGN: Final = re.compile(r'["{}\[\]]')
_IN_STRING: Final = re.compile(r'["\\]')


class _More(Exception):
    """Whether this is a call cannot be told from the text so far."""


class _No(Exception):
    """This is no call."""


@dataclass(frozen=True, slots=True)
class _Head:
    """The begin of a call in JSON."""

    name: str
    at: int
    """Where the arguments begin."""
    braces: int
    """How many objects are open around the arguments."""
    arguments: str | None = None
    """All arguments, where they are not at `at` but known already."""


class ToolCallParser:
    """Reads the calls in one text. `tools` are the JSON Schemas of the arguments of all tools that are offered.

    `only` names the tool whose arguments are all of the text.
    """

    def __init__(self, tools: Mapping[str, Mapping[str, Any]], only: str | None = None) -> None:
        self.count = 0
        """How many calls have started."""
        self._tools = tools
        self._only = only
        self._text = ""
        self._at = 0
        self._before = 0  # how many characters came before `_text`
        self._last = False
        self._events: list[CallEvent] = []
        self._white = ""
        self._state: Callable[[], bool] = self._in_text if only is None else self._in_only
        self._begun = 0
        self._name = ""
        self._parts: list[str] = []
        self._end = _ValueEnd()
        self._braces = 0
        self._in_list = False
        self._marked = False
        self._mark = ""
        self._closers: list[str] = []
        self._objects: dict[int, _ValueEnd] = {}

    def push(self, text: str) -> list[CallEvent]:
        """Take the next piece of the text, and return what is certain by now."""
        self._text = self._text[self._at :] + text
        self._before, self._at = self._before + self._at, 0
        return self._advance()

    def finish(self) -> list[CallEvent]:
        """Return the rest, since no more text follows."""
        self._last = True
        events = self._advance()
        if self._state == self._in_python:
            events += self._built_in_call()
        elif self._state in (
            self._in_arguments,
            self._in_head,
            self._in_function,
            self._in_parameters,
            self._in_pairs,
        ):
            events += self._broken("it is not complete")
        elif self._white and not self.count:
            events.append(TextDelta(self._white))
        return events

    def _advance(self) -> list[CallEvent]:
        while self._state():
            pass
        events, self._events = self._events, []
        return [*_joined(events)]

    # Text

    def _in_text(self) -> bool:
        found = _CANDIDATE.search(self._text, self._at)
        if found is None:
            self._say(len(self._text))
            return False
        self._say(found.start())
        self._begun = self._before + self._at
        try:
            self._open(self._at)
        except _More:
            if not self._last:
                return False
            self._say(self._at + 1)
        except _No:
            self._say(self._at + 1)
        return True

    def _say(self, end: int) -> None:
        """Send the text up to a place, but for white space at its end, which may stand before a call."""
        text = self._white + self._text[self._at : end]
        self._at = end
        said = text.rstrip()
        self._white = text[len(said) :]
        if said:
            self._events.append(TextDelta(said))

    def _open(self, at: int) -> None:
        """Begin a call at this place. Raises _More, _No."""
        more = False
        for mark in _MARKS:
            if self._text.startswith(mark, at):
                self._begin(at + len(mark), mark)
                return
            more = more or self._may_become(mark, at)
        try:
            self._open_json(at)
        except _No:
            if more:
                raise _More from None
            raise

    def _begin(self, at: int, mark: str) -> None:
        self._marked, self._mark, self._in_list = True, mark, False
        self._closers = [closer for closer in (_MARKS[mark],) if closer]
        self._at = at
        self._state = self._in_function if mark == "<function=" else self._in_head

    def _open_json(self, at: int) -> None:
        """Begin a call that has no mark: in a fenced block, in a list, or alone. Raises _More, _No."""
        fenced = self._text[at] == "`"
        if fenced:
            if not self._text.startswith(_FENCE, at):
                raise _More if self._may_become(_FENCE, at) else _No
            word = _WORD.match(self._text, at + len(_FENCE))
            assert word is not None, "the pattern matches nothing, too"
            if word.end() == len(self._text) and any(known.startswith(word[0]) for known in _FENCED):
                raise _More
            if word[0] not in _FENCED:
                raise _No
            at = _skipped(self._text, word.end())
        in_list = self._sign(at) == "["
        if in_list:
            at = _skipped(self._text, at + 1)
        if self._sign(at) != "{":
            raise _No
        head = self._head(at, strict=True)
        self._marked, self._mark, self._in_list = False, "", in_list
        self._closers = [_FENCE] if fenced else []
        self._start(head)

    # The begin of a call

    def _in_head(self) -> bool:
        """Read what follows on a mark, or on an earlier call in the same list."""
        self._at = _skipped(self._text, self._at)
        try:
            sign = self._sign(self._at)
            if sign == "{":
                self._start(self._head(self._at, strict=False))
            elif sign == "[" and not self._in_list:
                self._in_list = True
                self._at += 1
            elif sign == "]" and self._in_list:
                self._state = self._in_rest
            else:
                self._open_marked(sign)
        except _More:
            return False
        except _No:
            self._fail("it is no JSON object with the name of a tool and its arguments")
        return True

    def _open_marked(self, sign: str) -> None:
        """Begin a call in the form that its mark is for, where it is no JSON object. Raises _More, _No."""
        match self._mark:
            case "<tool_call>" if sign == "<":
                self._open_function()
            case "<tool_call>" if _BARE_NAME.match(sign) is not None:
                self._open_pairs()
            case "[TOOL_CALLS]":
                self._start(self._behind(_NAMED))
            case "<|python_tag|>":
                self._state = self._in_python
            case str(mark) if mark == _CALLS:
                self._open_call()
            case str(mark) if mark == _CALL:
                self._start(self._separated())
            case str(mark) if mark.endswith(_TO_FUNCTION):
                self._start(self._behind(_ADDRESSED))
            case _:
                raise _No

    def _open_function(self) -> None:
        mark = "<function="
        if not self._text.startswith(mark, self._at):
            raise _More if self._may_become(mark, self._at) else _No
        self._at += len(mark)
        self._closers.append("</function>")
        self._state = self._in_function

    def _behind(self, pattern: re.Pattern[str]) -> _Head:
        """Return the head of a call in JSON behind the bare name of a tool. Raises _More, _No."""
        found = pattern.match(self._text, self._at)
        if found is not None:
            return _Head(next(filter(None, found.groups())), found.end(), 0)
        if "{" in self._text[self._at :] or len(self._text) - self._at > _MOST_HEAD:
            raise _No
        raise _More

    def _open_call(self) -> None:
        """Begin one of several calls that have marks of their own. Raises _More, _No."""
        if not self._text.startswith(_CALL, self._at):
            raise _More if self._may_become(_CALL, self._at) else _No
        at, self._at = self._at, self._at + len(_CALL)
        try:
            head = self._separated()
        except _More:
            self._at = at
            raise
        self._closers.insert(1, _MARKS[_CALL])
        self._start(head)

    def _separated(self) -> _Head:
        """Return the head of a call whose name is separated from its arguments by a token. Raises _More, _No."""
        head = self._behind(_SEPARATED)
        if _FENCE in self._text[self._at : head.at]:
            self._closers.append(_FENCE)
        return head

    def _open_pairs(self) -> None:
        """Begin a call whose arguments are pairs of keys and values in XML, behind its bare name. Raises _More, _No."""
        found = _PAIRS.match(self._text, self._at)
        if found is None:
            name = _BARE_NAME.match(self._text, self._at)
            assert name is not None, "it begins with a sign of a name"
            at = name.end()
            is_begun = at == len(self._text) or any(self._may_become(one, at) for one in ("<arg_key>", "</tool_call>"))
            raise _More if is_begun and at - self._at <= _MOST_HEAD else _No
        self._start(_Head(found[1], found.end(), 0), as_json=False)
        if self._state == self._in_arguments:
            self._state = self._in_pairs

    def _in_pairs(self) -> bool:
        """Read the next pair of a key and a value, and tell it as a piece of JSON, when all of it is there."""
        mark = "</tool_call>"
        index, schema = self.count - 1, self._tools.get(self._name, {}).get("properties", {})
        self._at = _skipped(self._text, self._at)
        if self._text.startswith(mark, self._at):
            self._parts.append("}" if self._parts else "{}")
            self._events.append(ArgumentsDelta(index, self._parts[-1]))
            self._finish_call("".join(self._parts))
            return True
        found = _PAIR.match(self._text, self._at)
        if found is None:
            begun = self._text[self._at :]
            if not any(one.startswith(begun) or begun.startswith(one) for one in ("<arg_key>", mark)):
                self._fail("its arguments are no pairs of keys and values")
                return True
            return False
        key = found[1].strip()
        pair = json.dumps({key: _xml_value(found[2], schema.get(key))}, ensure_ascii=False)[1:-1]
        self._at = found.end()
        self._parts.append(f", {pair}" if self._parts else f"{{{pair}")
        self._events.append(ArgumentsDelta(index, self._parts[-1]))
        return True

    def _in_function(self) -> bool:
        """Read the name in `<function=NAME>`, and what follows on it."""
        end = self._text.find(">", self._at)
        if end < 0:
            if len(self._text) - self._at > _MOST_HEAD:
                self._fail("it has no name")
                return True
            return False
        name = self._text[self._at : end].strip().strip("\"'")
        at = _skipped(self._text, end + 1)
        if at == len(self._text) and not self._last:
            return False
        if self._text.startswith("{", at):
            self._start(_Head(name, at, 0))
        elif any(self._text.startswith(one, at) for one in ("<parameter=", "</function>")):
            self._name, self._at, self._state = name, at, self._in_parameters
        elif any(self._may_become(one, at) for one in ("<parameter=", "</function>")) and not self._last:
            return False
        else:
            self._fail("it has no arguments")
        return True

    def _in_parameters(self) -> bool:
        """Read arguments that are written as XML, when all of them are there."""
        end = self._text.find("</function>", self._at)
        if end < 0:
            return False
        schema = self._tools.get(self._name, {}).get("properties", {})
        found = _PARAMETER.findall(self._text, self._at, end)
        values = {name.strip(): _xml_value(value, schema.get(name.strip())) for name, value in found}
        self._start(_Head(self._name, end, 0, json.dumps(values, ensure_ascii=False)), as_json=False)
        return True

    def _in_python(self) -> bool:
        return False  # a call of a built-in tool, or code: both are read when they are complete

    def _built_in_call(self) -> list[CallEvent]:
        """Return the events of `NAME.call(KEY="VALUE", …)`, which Llama writes for tools that it knows."""
        code = self._text[self._at :]
        found = _BUILT_IN.match(code)
        name = found[1] if found else next((one for one in ("python", "code_interpreter") if one in self._tools), "")
        try:
            arguments = _keywords(code.strip()) if found else {"code": code.strip()}
            text = json.dumps(arguments, ensure_ascii=False)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):  # TypeError: such as bytes or a set
            return self._broken("it is no call of a tool")
        if name not in self._tools:
            return self._broken("it is no call of a tool that is offered")
        self._state = self._in_rest
        self._at = len(self._text)
        index, self.count, self._white = self.count, self.count + 1, ""
        return [
            ToolCallStarted(index, name, self._begun),
            ArgumentsDelta(index, text),
            ToolCallFinished(index, name, text),
        ]

    def _head(self, at: int, *, strict: bool) -> _Head:
        """Return the head of the call in JSON at this place, where an object begins.

        `strict`: it has to name a tool that is offered. Raises _More, _No.
        """
        start, braces, name = at, 1, None
        at = _skipped(self._text, at + 1)
        while True:
            key, at = self._string(at, _KEYS)
            if key not in _KEYS:
                raise _No
            at = self._after(at, ":")
            sign = self._sign(at)
            if key in _ARGUMENTS:
                return _Head(name, at, braces) if name is not None else self._whole(start, strict=strict)
            if key == "function" and sign == "{":
                braces, at = braces + 1, _skipped(self._text, at + 1)
                continue
            if key in _NAMES:
                name, at = self._string(at, tuple(self._tools) if strict else None)
                if strict and name not in self._tools:
                    raise _No
            else:
                at = self._scalar(at)
            at = _skipped(self._text, at)
            if self._sign(at) == "}" and name is not None and not strict:
                return _Head(name, at, braces, "{}")
            at = self._after(at, ",")

    def _whole(self, start: int, *, strict: bool) -> _Head:
        """Return the head of a call whose arguments come before its name, when all of it is there."""
        scanner = self._objects.setdefault(self._before + start, _ValueEnd())
        end = scanner.feed(self._text, max(start, scanner.seen - self._before), self._before)
        if end is None:
            raise _More
        self._objects.clear()
        try:
            call = json.loads(self._text[start:end])
        except (ValueError, RecursionError):
            raise _No from None
        call = call["function"] if isinstance(call.get("function"), dict) else call
        name = next((call[key] for key in _NAMES if isinstance(call.get(key), str)), None)
        arguments = next((call[key] for key in _ARGUMENTS if isinstance(call.get(key), dict)), None)
        if name is None or arguments is None or not call.keys() <= set(_KEYS) or (strict and name not in self._tools):
            raise _No
        return _Head(name, end, 0, json.dumps(arguments, ensure_ascii=False))

    def _start(self, head: _Head, *, as_json: bool = True) -> None:
        """Start a call whose head has been read."""
        self._at = head.at
        if head.name not in self._tools:
            known = ", ".join(self._tools) or "none"
            self._fail(f"there is no tool {head.name[:80]!r}; accepted: {known}")
            return
        index = self.count
        self.count, self._white = index + 1, ""
        self._name, self._parts, self._braces, self._end = head.name, [], head.braces, _ValueEnd()
        self._events.append(ToolCallStarted(index, head.name, self._begun, as_json))
        if head.arguments is None:
            self._state = self._in_arguments
        else:
            self._finish_call(head.arguments, delta=head.arguments)

    def _finish_call(self, arguments: str, delta: str = "") -> None:
        index = self.count - 1
        if delta:
            self._events.append(ArgumentsDelta(index, delta))
        self._events.append(ToolCallFinished(index, self._name, arguments))
        self._state = self._in_rest

    # Arguments, and what follows on them

    def _in_arguments(self) -> bool:
        if not self._parts:
            self._at = _skipped(self._text, self._at)
            if self._at == len(self._text):
                return False
            if self._text[self._at] != "{":
                return self._other_arguments()
        end = self._end.feed(self._text, self._at)
        piece = self._text[self._at : len(self._text) if end is None else end]
        self._at += len(piece)
        if piece:
            self._parts.append(piece)
            self._events.append(ArgumentsDelta(self.count - 1, piece))
        if end is None:
            return False
        self._finish_call("".join(self._parts))
        return True

    def _other_arguments(self) -> bool:
        """Read arguments that are no object: JSON in a string, or null for none."""
        if self._text[self._at] == '"':
            found = _STRING.match(self._text, self._at)
            if found is None:
                return False
            try:
                arguments = str(json.loads(found[0], strict=False)) or "{}"
            except ValueError:
                self._fail("its arguments are no JSON object")
                return True
            self._at = found.end()
            self._finish_call(arguments, delta=arguments)
        elif self._text.startswith("null", self._at):
            self._at += len("null")
            self._finish_call("{}", delta="{}")
        elif self._may_become("null", self._at) and not self._last:
            return False
        else:
            self._fail("its arguments are no JSON object")
        return True

    def _in_rest(self) -> bool:
        """Pass over what belongs to a call and follows on its arguments."""
        self._at = _skipped(self._text, self._at)
        try:
            sign = self._sign(self._at)
            if self._braces:
                if sign == ",":
                    _, at = self._string(_skipped(self._text, self._at + 1), None)
                    self._at = self._scalar(self._after(at, ":"))
                else:
                    self._braces -= 1
                    self._at += sign == "}"
            elif self._in_list and sign in ",]":
                self._in_list = sign == ","
                self._at += 1
                if self._in_list:
                    self._next_call()
            elif self._closers:
                self._close()
            elif sign == "{" and self._marked:
                self._next_call()
            elif sign in ";," and self._sign(_skipped(self._text, self._at + 1)) == "{":
                self._at += 1
                self._state = self._in_text
            else:
                self._state = self._in_text
        except _More:
            return False
        except _No:
            self._braces = 0
            self._state = self._in_text
        return True

    def _next_call(self) -> None:
        """Go on with another call behind the same mark, or in the same list."""
        self._begun = self._before + self._at
        self._state = self._in_head

    def _close(self) -> None:
        """Pass over the mark that ends a call, if it is there. Raises _More."""
        closer = self._closers[-1]
        if self._text.startswith(closer, self._at):
            self._at += len(closer)
            self._closers.pop()
        elif self._may_become(closer, self._at):
            raise _More
        elif self._text[self._at] == "{" and self._marked:
            self._next_call()
        elif self._mark == _CALLS and self._text.startswith(_CALL, self._at):
            self._next_call()
        elif self._mark == _CALLS and self._may_become(_CALL, self._at):
            raise _More
        else:
            self._closers.clear()

    def _in_only(self) -> bool:
        """Begin the arguments of the one tool that has to be called."""
        assert self._only is not None, "this is the state of a text that is all arguments"
        self._at = _skipped(self._text, self._at)
        if self._at == len(self._text) and not self._last:
            return False
        self._begun = self._before + self._at
        self._start(_Head(self._only, self._at, 0))
        return True

    # A broken call

    def _fail(self, problem: str) -> None:
        self._events += self._broken(problem)
        self._state = self._in_nothing

    def _broken(self, problem: str) -> list[CallEvent]:
        started = self._state in (self._in_arguments, self._in_pairs)
        self._state = self._in_nothing
        return [ToolCallBroken(self.count - 1 if started else None, self._begun, problem)]

    def _in_nothing(self) -> bool:
        self._at = len(self._text)
        return False

    # Read the text

    def _may_become(self, mark: str, at: int) -> bool:
        """Return whether the text ends with the begin of a mark, at this place."""
        left = len(self._text) - at
        return left < len(mark) and mark.startswith(self._text[at:])

    def _sign(self, at: int) -> str:
        if at >= len(self._text):
            raise _More
        return self._text[at]

    def _after(self, at: int, sign: str) -> int:
        """Return the place of what follows on a sign, and on white space around it. Raises _More, _No."""
        at = _skipped(self._text, at)
        if self._sign(at) != sign:
            raise _No
        return _skipped(self._text, at + 1)

    def _string(self, at: int, known: Sequence[str] | None) -> tuple[str, int]:
        """Return the string at this place and where it ends. `known`: those that it may be. Raises _More, _No."""
        if self._sign(at) != '"':
            raise _No
        found = _STRING.match(self._text, at)
        if found is not None:
            try:
                return str(json.loads(found[0], strict=False)), found.end()
            except ValueError:
                raise _No from None
        begun = self._text[at + 1 :]
        if len(begun) > _MOST_HEAD or (known is not None and not _begins_any(begun, known)):
            raise _No
        raise _More

    def _scalar(self, at: int) -> int:
        """Return the end of a string, number or word. Raises _More, _No."""
        if self._sign(at) == '"':
            return self._string(at, None)[1]
        found = _SCALAR.match(self._text, at)
        if found is None:
            raise _No
        if found.end() == len(self._text):
            raise _More
        return found.end()


class _ValueEnd:
    """Finds the end of a JSON object or array that comes in pieces, by its brackets. `seen` counts its characters."""

    def __init__(self) -> None:
        self.seen = 0
        self._depth = 0
        self._in_string = self._escaped = False

    def feed(self, text: str, at: int, before: int = 0) -> int | None:
        """Return where the object ends in this text, which goes on at `at`; None if it does not end in it.

        `before` is how many characters came before this text.
        """
        self.seen = before + len(text)
        while at < len(text):
            if self._escaped:
                at, self._escaped = at + 1, False
                continue
            found = (_IN_STRING if self._in_string else _SIGN).search(text, at)
            if found is None:
                return None
            at, sign = found.end(), found[0]
            if sign == "\\":
                self._escaped = True
            elif sign == '"':
                self._in_string = not self._in_string
            elif sign in "{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth <= 0:
                    return at
        return None


def _joined(events: Sequence[CallEvent]) -> Iterator[CallEvent]:
    """Yield the events, with the texts that follow on each other as one."""
    for is_text, group in itertools.groupby(events, key=lambda event: isinstance(event, TextDelta)):
        if is_text:
            yield TextDelta("".join(event.text for event in group if isinstance(event, TextDelta)))
        else:
            yield from group


def _skipped(text: str, at: int) -> int:
    """Return where the white space at a place ends."""
    found = _SPACE.match(text, at)
    assert found is not None, "the pattern matches nothing, too"
    return found.end()


def _begins_any(begun: str, known: Collection[str]) -> bool:
    return any(one.startswith(begun) for one in known) or "\\" in begun


def _xml_value(text: str, schema: object) -> Any:
    """Return the value of a parameter in XML: a text where its schema says so, else JSON where it is some."""
    if isinstance(schema, Mapping) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _keywords(code: str) -> dict[str, Any]:
    """Return the arguments of a call in Python's syntax. Raises SyntaxError, ValueError."""
    call = ast.parse(code, mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError(code)
    return {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg is not None}
