"""Parse tool calls from a stream of text, in the syntax of the model's chat template. Pure.

    text ──a mark, and the start of a call──▶ head ──name, and the start of arguments──▶ arguments ──▶ rest ──▶ text
      ▲                                        │
      └──no call after all─────────────────────┘

A call starts with a mark of the model's family (`registry.call_syntax`), at the start of a line and outside of code
blocks, or is bare JSON at the start of the answer. If no start of a call follows, the mark is text, so an answer may
explain the syntax. Text that may become a call is held back. The events do not depend on how the text is split into
pieces, and the work is linear in its length.
"""

import ast
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from orchestrator.engine.literal_calls import LITERAL_FORMS, PYTHON
from orchestrator.engine.whole_calls import (
    WholeBroken,
    WholeCall,
    WholeForm,
    WholeText,
    skip_space,
    start_of,
    unknown_tool,
)
from orchestrator.engine.xml_calls import LONE_FUNCTION, LONE_UNFINISHED, PARAMETERS, XML_FORMS
from orchestrator.registry.call_syntax import CallSyntax


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the text around calls, without the white space between text and calls."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """`index` counts the calls of one text from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """A piece of the arguments, as the model wrote them."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    """A complete call. Its arguments are not validated; they may not even be JSON."""

    index: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallBroken:
    """A call started but became malformed. Nothing after it is parsed."""

    index: int | None  # None if the call has not started
    at: int  # the offset of the call in the text, in characters
    problem: str


CallEvent: TypeAlias = TextDelta | ToolCallStarted | ArgumentsDelta | ToolCallFinished | ToolCallBroken

_NAMES: Final = ("name", "tool", "tool_name", "function")
_ARGUMENTS: Final = ("arguments", "parameters", "args")
_OTHERS: Final = ("id", "type", "index", "tool_call_id")
_KEYS: Final = (*_NAMES, *_ARGUMENTS, *_OTHERS)
_CALLS: Final = "<｜tool▁calls▁begin｜>"  # starts several calls, each with the mark `_CALL`
_CALL: Final = "<｜tool▁call▁begin｜>"
_TOOL_CALLS: Final = "[TOOL_CALLS]"
_PYTHON: Final = "<|python_tag|>"
_GEMMA: Final = "<|tool_call>"
_FUNCTION: Final = "<function="
_TO_FUNCTION: Final = "to=functions."  # ends the marks of messages to a function
# The ends of what these marks start. Messages to a function end with `_SENT`, others have no end.
_CLOSERS: Final = {
    "<tool_call>": "</tool_call>",
    "<|tool_call|>": "<|/tool_call|>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    _GEMMA: "<tool_call|>",
    _FUNCTION: "</function>",
    _CALLS: "<｜tool▁calls▁end｜>",
    _CALL: "<｜tool▁call▁end｜>",
}
_SENT: Final = "<|call|>"
_FORMS: Final[Mapping[str, WholeForm]] = {**XML_FORMS, **LITERAL_FORMS}
_FENCE: Final = "```"
_FENCED: Final = ("", "json", "tool_call", "tool_calls", "tool_code")  # accepted after the fence around a bare call
_MOST_HEAD: Final = 512  # the most characters from a mark, or from the start of an object, to the arguments
_WORD: Final = re.compile(r"\w*")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.){0,512}"', re.S)
_SCALAR: Final = re.compile(r'[^\s,}\]"{\[]+')


@dataclass(frozen=True, slots=True)
class _NamedHead:
    """Patterns of the text with the tool's name between a mark and the arguments. One group is the name."""

    whole: re.Pattern[str]
    unfinished: re.Pattern[str]  # a text that may become `whole`


_NAMED: Final = _NamedHead(
    re.compile(r"\s*([\w.-]{1,512})\s*(?:\[CALL_ID\]\s*\w*\s*)?(?:\[ARGS\]|(?=\{))"),
    re.compile(r"\s*[\w.-]{0,512}\s*(?:\[[A-Z_]{0,9}(?:\]\s*\w*\s*(?:\[[A-Z]{0,5})?)?)?\Z"),
)
_SEPARATED: Final = _NamedHead(
    re.compile(r"\s*(?:function<｜tool▁sep｜>([\w.-]{1,512})\s*```(?:json)?|([\w.-]{1,512})<｜tool▁sep｜>)\s*(?=\{)"),
    re.compile(r"\s*[\w.-]{0,512}(?:<[^<>{]{0,16}(?:>[\w.-]{0,512}\s*`{0,3}(?:j|js|jso|json)?\s*)?)?\Z"),
)
_ADDRESSED: Final = _NamedHead(
    re.compile(r"([\w.-]{1,128})[^{\n]{0,64}?<\|message\|>"), re.compile(r"[\w.-]{0,128}[^{\n]{0,75}\Z")
)
_TAGGED: Final = _NamedHead(re.compile(r"([^<>\n{]{1,512})>\s*(?=\{)"), re.compile(r"[^<>\n{]{0,512}(?:>\s*)?\Z"))
_CALLED: Final = _NamedHead(
    re.compile(r"\s*call:\s*([\w.-]{1,512})\s*(?=\{)"),
    re.compile(rf"\s*(?:{start_of('call:')}|call:\s*[\w.-]{{0,512}}\s*)\Z"),
)
# Marks that the name of a tool follows directly.
_NAMED_BEHIND: Final[Mapping[str, _NamedHead]] = {
    _FUNCTION: _TAGGED,
    _CALL: _SEPARATED,
    _GEMMA: _CALLED,
    "<|channel|>commentary to=functions.": _ADDRESSED,
    "<|start|>assistant to=functions.": _ADDRESSED,
    "<|start|>assistant<|channel|>commentary to=functions.": _ADDRESSED,
}
_BUILT_IN: Final = re.compile(r"\s*([\w-]+)\.call\(", re.S)
_CODE_TOOLS: Final = ("python", "code_interpreter")
_SIGN: Final = re.compile(r'["{}\[\]]')
_IN_STRING: Final = re.compile(r'["\\]')
_BLOCK: Final = re.compile(r"\s*(`{3,}|~{3,})(.*)")
_LINE_START: Final = 80  # characters at the start of a line that are searched for the fence of a code block
# Before a mark that may follow text in the same line, these mean that the text only mentions it.
_BEFORE_NO_CALL: Final = " \t\"'`([{<«“„"


class _More(Exception):
    """The text so far does not decide whether this is a call."""


class _No(Exception):
    """This is no call."""


class _ArgumentsFirst(Exception):
    """The arguments of a call precede its name, so the whole object is needed."""


@dataclass(frozen=True, slots=True)
class _Head:
    name: str
    at: int  # start of the arguments
    braces: int = 0  # open objects around the arguments
    arguments: str | None = None  # all arguments, if they are already known


class ToolCallParser:
    """Parses the calls in one text of a model with this syntax.

    Without a syntax, calls are JSON, as the prompt asks for them. `tools` maps the names of the offered tools to JSON
    Schemas of their arguments. If `only` names a tool, the whole text is its arguments.
    """

    def __init__(
        self, tools: Mapping[str, Mapping[str, Any]], syntax: CallSyntax | None = None, only: str | None = None
    ) -> None:
        self.count = 0  # calls that have started
        self._tools = tools
        self._only = only
        self._form = _FORMS.get(syntax.arguments) if syntax is not None else None
        self._marks = () if syntax is None else syntax.marks
        if self._form is PARAMETERS:
            self._marks = (*self._marks, _FUNCTION)
        self._inline = syntax is not None and syntax.inline
        self._bare_signs = "{[`" if syntax is None else "{[" if syntax.bare else ""
        signs = "".join(sorted({mark[0] for mark in self._marks}))
        self._candidate = re.compile(f"[{re.escape(signs)}]" if signs else "(?!)")
        self._text = ""
        self._at = 0
        self._before = 0  # how many characters came before `_text`
        self._last = False
        self._events: list[CallEvent] = []
        self._white: list[str] = []
        self._place = _Place()
        self._state: Callable[[], bool] = self._at_start if only is None else self._in_only
        self._begun = 0
        self._name = ""
        self._parts: list[str] = []
        self._end = _ValueEnd()
        self._arguments = ""
        self._braces = 0
        self._in_list = False
        self._mark = ""
        self._closers: list[str] = []
        self._object_at = 0  # offset of the object in the text that is held back

    def push(self, text: str) -> list[CallEvent]:
        """Add text; return the events that are now certain."""
        self._text = self._text[self._at :] + text
        self._before, self._at = self._before + self._at, 0
        return self._advance()

    def finish(self) -> list[CallEvent]:
        """End the text; return the remaining events."""
        self._last = True
        while self._state():
            pass
        if self._state == self._in_whole:
            self._end_whole()
        elif self._state == self._in_python:
            self._end_python()
        elif self._state == self._in_object:
            self._say_held()
        elif self._state == self._in_object_end:
            self._end_call()
        elif self._state in (self._in_arguments, self._in_string, self._in_head):
            self._fail("it is not complete")
        if self._white and not self.count and self._state != self._in_nothing:
            self._events.append(TextDelta("".join(self._white)))
        return self._advance()

    def _advance(self) -> list[CallEvent]:
        while self._state():
            pass
        events, self._events = self._events, []
        return [*_joined(events)]

    # Text

    def _in_text(self) -> bool:
        match = self._candidate.search(self._text, self._at)
        if match is None:
            self._say(len(self._text))
            return False
        self._say(match.start())
        if self._place.may_begin_call(inline=self._inline):
            return self._attempt(self._open_marked)
        self._say(self._at + 1)
        return True

    def _at_start(self) -> bool:
        # A call without a mark is at the start of the answer or follows another call.
        self._say(skip_space(self._text, self._at))
        if self._at == len(self._text):
            return False
        if self._text[self._at] in self._bare_signs:
            return self._attempt(self._open_bare)
        self._state = self._in_text
        return True

    def _attempt(self, open_call: Callable[[], None]) -> bool:
        self._begun = self._before + self._at
        try:
            open_call()
            return True
        except _More:
            if not self._last and len(self._text) - self._at <= _MOST_HEAD:
                return False
        except _No:
            pass
        self._state = self._in_text
        self._say(self._at + 1)
        return True

    def _say(self, end: int) -> None:
        piece = self._text[self._at : end]
        self._at = end
        self._say_text(piece)

    def _say_text(self, piece: str) -> None:
        self._place.feed(piece)
        # White space at the end is kept back, as a call may follow.
        text = piece.rstrip()
        if text:
            self._events.append(TextDelta("".join((*self._white, text))))
            self._white.clear()
        if len(text) < len(piece):
            self._white.append(piece[len(text) :])

    def _hold(self, state: Callable[[], bool], at: int) -> None:
        # The text up to `at` is held back, and what follows while the state lasts.
        self._parts = [self._text[self._at : at]]
        self._at, self._state = at, state

    def _say_held(self) -> None:
        self._state = self._in_text
        self._say_text("".join(self._parts))

    # The start of a call

    # These methods raise _More or _No.
    def _open_marked(self) -> None:
        for mark in self._marks:
            if self._text.startswith(mark, self._at):
                if self._form is None:
                    self._open_behind(mark, self._at + len(mark))
                elif mark == _FUNCTION:
                    self._open_lone_function()
                elif self._form is not PYTHON or not self._opened_as_json(mark):
                    self._open_whole(self._form)
                return
        raise _More if any(self._may_become(mark, self._at) for mark in self._marks) else _No

    def _opened_as_json(self, mark: str) -> bool:
        try:
            self._open_behind(mark, self._at + len(mark))
        except _No:
            return False
        return True

    def _open_whole(self, form: WholeForm) -> None:
        # The arguments are no JSON. They are parsed when the text is complete.
        if form.opening.match(self._text, self._at) is None:
            raise _More if form.unfinished.match(self._text, self._at) else _No
        self._hold(self._in_whole, self._at)

    def _open_lone_function(self) -> None:
        # Only the mark is missing. After another tag it is no call: that tag may be the mark, misspelt.
        opening = LONE_FUNCTION.match(self._text, self._at)
        if opening is None:
            raise _More if LONE_UNFINISHED.match(self._text, self._at) else _No
        if opening[1].strip() not in self._tools or self._place.follows_tag:
            raise _No
        self._hold(self._in_whole, self._at)

    def _open_behind(self, mark: str, at: int) -> None:
        closers = [_CLOSERS[mark]] if mark in _CLOSERS else [_SENT] if mark.endswith(_TO_FUNCTION) else []
        start = skip_space(self._text, at)
        if mark in _NAMED_BEHIND:
            self._begin(mark, closers, self._named(_NAMED_BEHIND[mark], at))
        elif mark == _CALLS:
            self._open_separated(mark, closers, start)
        elif self._sign(start) == "{":
            self._open_object(mark, closers, start)
        elif self._text[start] == "[" and self._sign(skip_space(self._text, start + 1)) == "{":
            self._open_object(mark, closers, skip_space(self._text, start + 1), in_list=True)
        elif mark == _TOOL_CALLS:
            self._begin(mark, closers, self._named(_NAMED, at))
        elif mark == _PYTHON:
            self._mark = mark
            self._hold(self._in_python, at)
        else:
            raise _No

    def _open_separated(self, mark: str, closers: Sequence[str], at: int) -> None:
        if not self._text.startswith(_CALL, at):
            raise _More if self._may_become(_CALL, at) else _No
        self._begin(mark, [*closers, _CLOSERS[_CALL]], self._named(_SEPARATED, at + len(_CALL)))

    def _named(self, form: _NamedHead, at: int) -> _Head:
        head = form.whole.match(self._text, at)
        if head is None:
            raise _More if form.unfinished.match(self._text, at) else _No
        return _Head(next(filter(None, head.groups())), head.end())

    def _open_bare(self) -> None:
        at, closers = self._at, list[str]()
        if self._text[at] == "`":
            at, closers = self._behind_fence(at), [_FENCE]
        in_list = self._sign(at) == "["
        if in_list:
            at = skip_space(self._text, at + 1)
        if self._sign(at) != "{":
            raise _No
        self._open_object("", closers, at, in_list=in_list)

    def _behind_fence(self, at: int) -> int:
        if not self._text.startswith(_FENCE, at):
            raise _More if self._may_become(_FENCE, at) else _No
        word = _WORD.match(self._text, at + len(_FENCE))
        assert word is not None, "the pattern matches nothing, too"
        if word.end() == len(self._text) and any(language.startswith(word[0]) for language in _FENCED):
            raise _More
        if word[0] not in _FENCED:
            raise _No
        return skip_space(self._text, word.end())

    def _open_object(self, mark: str, closers: Sequence[str], at: int, *, in_list: bool = False) -> None:
        is_first = self._state != self._in_head
        try:
            self._begin(mark, closers, self._head(at, strict=is_first and not mark), in_list=in_list)
        except _ArgumentsFirst:
            self._mark, self._closers, self._in_list, self._end = mark, [*closers], in_list, _ValueEnd()
            self._object_at = at - self._at
            self._hold(self._in_object, at)

    def _begin(self, mark: str, closers: Sequence[str], head: _Head, *, in_list: bool = False) -> None:
        self._mark, self._closers, self._in_list = mark, [*closers], in_list
        if _FENCE in self._text[self._at : head.at] and mark in (_CALLS, _CALL):
            self._closers.append(_FENCE)
        self._start(head)

    def _in_head(self) -> bool:
        self._at = skip_space(self._text, self._at)
        try:
            if self._sign(self._at) == "{":
                self._open_object(self._mark, self._closers, self._at, in_list=self._in_list)
            elif self._mark == _CALLS:
                self._open_separated(self._mark, self._closers, self._at)
            elif self._text[self._at] == "]" and self._in_list:
                self._state = self._in_rest
            else:
                raise _No
        except _More:
            if not self._last and len(self._text) - self._at <= _MOST_HEAD:
                return False
            self._fail("it is not complete")
        except _No:
            self._fail("it is no JSON object with the name of a tool and its arguments")
        return True

    def _head(self, at: int, *, strict: bool) -> _Head:
        # Raises _More, _No, _ArgumentsFirst. If `strict`, the name must be an offered tool.
        braces, name = 1, None
        at = skip_space(self._text, at + 1)
        while True:
            key, at = self._string(at, _KEYS)
            if key not in _KEYS:
                raise _No
            at = self._after(at, ":")
            if key in _ARGUMENTS:
                if name is None:
                    raise _ArgumentsFirst
                return _Head(name, at, braces)
            sign = self._sign(at)
            if key == "function" and sign == "{":
                braces, at = braces + 1, skip_space(self._text, at + 1)
                continue
            if key in _NAMES:
                name, at = self._string(at, tuple(self._tools) if strict else None)
                if strict and name not in self._tools:
                    raise _No
            else:
                at = self._scalar(at)
            at = skip_space(self._text, at)
            if self._sign(at) == "}" and name is not None and not strict:
                return _Head(name, at, braces, "{}")
            at = self._after(at, ",")

    def _in_object(self) -> bool:
        # The arguments precede the name, so the whole call is held back.
        end = self._end.feed(self._text, self._at)
        piece = self._text[self._at : len(self._text) if end is None else end]
        self._parts.append(piece)
        self._at += len(piece)
        if end is None:
            return False
        call = _call_in("".join(self._parts)[self._object_at :])
        if call is None or (call[0] not in self._tools and not self._mark):
            self._say_held()
        else:
            self._start(_Head(call[0], self._at, 0, call[1]))
        return True

    def _start(self, head: _Head) -> None:
        self._at = head.at
        if head.name not in self._tools:
            self._fail(unknown_tool(head.name, self._tools))
            return
        index = self.count
        self.count += 1
        self._white.clear()
        self._name, self._parts, self._braces, self._end = head.name, [], head.braces, _ValueEnd()
        self._events.append(ToolCallStarted(index, head.name))
        if head.arguments is None:
            self._state = self._in_arguments
        else:
            self._finish_call(head.arguments, delta=head.arguments)

    def _finish_call(self, arguments: str, delta: str = "") -> None:
        if delta:
            self._events.append(ArgumentsDelta(self.count - 1, delta))
        self._arguments = arguments
        # The objects around the arguments may contain more.
        if self._braces:
            self._state = self._in_object_end
        else:
            self._end_call()

    def _end_call(self) -> None:
        self._events.append(ToolCallFinished(self.count - 1, self._name, self._arguments))
        self._place = _Place()
        self._state = self._in_rest

    # Calls that are read when all of the text is there

    def _in_whole(self) -> bool:
        self._parts.append(self._text[self._at :])
        self._at = len(self._text)
        return False

    def _end_whole(self) -> None:
        assert self._form is not None, "the model writes no JSON"
        self._state = self._in_nothing
        for part in self._form.read("".join(self._parts), self._tools):
            match part:
                case WholeText(text):
                    self._events.append(TextDelta(text.strip()))
                case WholeCall(name, arguments):
                    self._say_call(name, arguments)
                case WholeBroken(at, problem):
                    self._events.append(ToolCallBroken(None, self._begun + at, problem))

    def _in_python(self) -> bool:
        self._parts.append(self._text[self._at :])
        self._at = len(self._text)
        return False

    def _end_python(self) -> None:
        # `NAME.call(KEY="VALUE", …)`, which Llama writes for its built-in tools, or code for a tool.
        code = "".join(self._parts[1:])
        built_in = _BUILT_IN.match(code)
        name = built_in[1] if built_in else next((tool for tool in _CODE_TOOLS if tool in self._tools), "")
        if not built_in and not name:
            self._say_held()
            return
        try:
            arguments = _keywords(code.strip()) if built_in else {"code": code.strip()}
            text = json.dumps(arguments, ensure_ascii=False)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):  # TypeError: such as bytes or a set
            self._fail("it is no call of a tool")
            return
        if name not in self._tools:
            self._fail(unknown_tool(name, self._tools))
            return
        self._say_call(name, text)
        self._state = self._in_nothing

    def _say_call(self, name: str, arguments: str) -> None:
        index = self.count
        self.count += 1
        self._white.clear()
        self._events += [
            ToolCallStarted(index, name),
            ArgumentsDelta(index, arguments),
            ToolCallFinished(index, name, arguments),
        ]

    # Arguments, and what follows on them

    def _in_arguments(self) -> bool:
        if not self._parts:
            self._at = skip_space(self._text, self._at)
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
        # JSON in a string, or null for no arguments
        if self._text[self._at] == '"':
            self._state = self._in_string
        elif self._text.startswith("null", self._at):
            self._at += len("null")
            self._finish_call("{}", delta="{}")
        elif self._may_become("null", self._at) and not self._last:
            return False
        else:
            self._fail("its arguments are no JSON object")
        return True

    def _in_string(self) -> bool:
        # Arguments as JSON in a string are held back up to its end.
        end = self._end.feed(self._text, self._at)
        piece = self._text[self._at : len(self._text) if end is None else end]
        self._parts.append(piece)
        self._at += len(piece)
        if end is None:
            return False
        try:
            arguments = str(json.loads("".join(self._parts), strict=False)) or "{}"
        except ValueError:
            self._fail("its arguments are no JSON object")
            return True
        self._finish_call(arguments, delta=arguments)
        return True

    def _in_object_end(self) -> bool:
        # Braces or keys that belong to no tool, such as an id, follow the arguments. Any other key may be a misplaced
        # argument. A brace may be missing.
        self._at = skip_space(self._text, self._at)
        if self._at == len(self._text):
            return False
        try:
            if self._text[self._at] == ",":
                key, at = self._string(skip_space(self._text, self._at + 1), _OTHERS)
                at = self._scalar(self._after(at, ":"))
                if key not in _OTHERS:
                    raise _No
                self._at = at
            else:
                self._at += self._text[self._at] == "}"
                self._braces -= 1
                if not self._braces:
                    self._end_call()
        except _More:
            if not self._last and len(self._text) - self._at <= _MOST_HEAD:
                return False
            self._fail("it is not complete")
        except _No:
            self._fail("its object holds more than a name and arguments")
        return True

    def _in_rest(self) -> bool:
        self._at = skip_space(self._text, self._at)
        try:
            sign = self._sign(self._at)
            if self._in_list and sign in ",]":
                self._in_list = sign == ","
                self._at += 1
                if self._in_list:
                    self._next_call()
            elif self._closers:
                self._close()
            elif self._bare_signs and sign in ";," and self._sign(skip_space(self._text, self._at + 1)) == "{":
                self._at += 1
                self._state = self._at_start
            else:
                self._state = self._at_start
        except _More:
            return False
        return True

    def _next_call(self) -> None:
        self._begun = self._before + self._at
        if self._mark == _CALLS:
            self._closers = self._closers[:1]
        self._state = self._in_head

    def _close(self) -> None:
        closer = self._closers[-1]
        if self._text.startswith(closer, self._at):
            self._at += len(closer)
            self._closers.pop()
        elif self._may_become(closer, self._at):
            raise _More
        elif (self._text[self._at] == "{" and self._mark) or (
            self._mark == _CALLS and self._text.startswith(_CALL, self._at)
        ):
            self._next_call()
        elif self._mark == _CALLS and self._may_become(_CALL, self._at):
            raise _More
        else:
            self._closers.clear()

    def _in_only(self) -> bool:
        assert self._only is not None, "this is the state of a text that is all arguments"
        self._at = skip_space(self._text, self._at)
        if self._at == len(self._text) and not self._last:
            return False
        self._begun = self._before + self._at
        self._start(_Head(self._only, self._at))
        return True

    # A broken call

    def _fail(self, problem: str) -> None:
        index = self.count - 1 if self._state in (self._in_arguments, self._in_string, self._in_object_end) else None
        self._events.append(ToolCallBroken(index, self._begun, problem))
        self._state = self._in_nothing

    def _in_nothing(self) -> bool:
        self._at = len(self._text)
        return False

    # Read the text

    def _may_become(self, mark: str, at: int) -> bool:
        remaining = len(self._text) - at
        return remaining < len(mark) and mark.startswith(self._text[at:])

    def _sign(self, at: int) -> str:
        if at >= len(self._text):
            raise _More
        return self._text[at]

    def _after(self, at: int, sign: str) -> int:
        at = skip_space(self._text, at)
        if self._sign(at) != sign:
            raise _No
        return skip_space(self._text, at + 1)

    def _string(self, at: int, accepted: Sequence[str] | None) -> tuple[str, int]:
        # `accepted`: what the string may be. Also returns its end.
        if self._sign(at) != '"':
            raise _No
        literal = _STRING.match(self._text, at)
        if literal is not None:
            try:
                return str(json.loads(literal[0], strict=False)), literal.end()
            except ValueError:
                raise _No from None
        prefix = self._text[at + 1 : at + 2 + _MOST_HEAD]
        if len(prefix) > _MOST_HEAD or (accepted is not None and not _begins_any(prefix, accepted)):
            raise _No
        raise _More

    def _scalar(self, at: int) -> int:
        if self._sign(at) == '"':
            return self._string(at, None)[1]
        scalar = _SCALAR.match(self._text, at)
        if scalar is None:
            raise _No
        if scalar.end() == len(self._text):
            raise _More
        return scalar.end()


class _Place:
    """Tracks whether a call may start at the end of the text so far."""

    def __init__(self) -> None:
        self._line = ""
        self._is_blank = True
        self._sign = "\n"
        self._fence = ""
        self.follows_tag = False  # only white space follows the last tag

    def feed(self, text: str) -> None:
        *lines, rest = text.split("\n")
        for line in lines:
            self._extend(line)
            self._end_line()
        self._extend(rest)

    def may_begin_call(self, *, inline: bool) -> bool:
        """Return whether a call may start here; with `inline`, also after text in the same line."""
        if self._fence:
            return False
        return self._is_blank or (inline and self._sign not in _BEFORE_NO_CALL)

    def _extend(self, text: str) -> None:
        if not text:
            return
        self._sign = text[-1]
        self._line += text[: max(0, _LINE_START - len(self._line))]
        if not text.isspace():
            self._is_blank, self.follows_tag = False, text.rstrip().endswith(">")

    def _end_line(self) -> None:
        block = _BLOCK.match(self._line)
        if block is not None and not self._fence:
            self._fence = block[1] if "`" not in block[2] else ""
        elif block is not None and block[1].startswith(self._fence) and not block[2].strip():
            self._fence = ""
        self._line, self._is_blank, self._sign = "", True, "\n"


class _ValueEnd:
    """Finds the end of a JSON object, array or string in pieces of text."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._escaped = False

    def feed(self, text: str, at: int) -> int | None:
        """Return the offset at which the value, which continues at `at`, ends; None if it does not end in this text."""
        while at < len(text):
            if self._escaped:
                at, self._escaped = at + 1, False
                continue
            match = (_IN_STRING if self._in_string else _SIGN).search(text, at)
            if match is None:
                return None
            at, sign = match.end(), match[0]
            if sign == "\\":
                self._escaped = True
            elif sign == '"':
                self._in_string = not self._in_string
            elif sign in "{[":
                self._depth += 1
            else:
                self._depth -= 1
            if self._depth <= 0 and not self._in_string:
                return at
        return None


def _call_in(text: str) -> tuple[str, str] | None:
    try:
        call = json.loads(text)
        call = call["function"] if isinstance(call.get("function"), dict) else call
        name = next((call[key] for key in _NAMES if isinstance(call.get(key), str)), None)
        arguments = next((call[key] for key in _ARGUMENTS if isinstance(call.get(key), dict)), None)
        if name is None or arguments is None or not call.keys() <= set(_KEYS):
            return None
        return name, json.dumps(arguments, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _joined(events: Sequence[CallEvent]) -> Iterator[CallEvent]:
    # Consecutive texts become one.
    for is_text, group in itertools.groupby(events, key=lambda event: isinstance(event, TextDelta)):
        if is_text:
            yield TextDelta("".join(event.text for event in group if isinstance(event, TextDelta)))
        else:
            yield from group


def _begins_any(prefix: str, accepted: Collection[str]) -> bool:
    return any(text.startswith(prefix) for text in accepted) or "\\" in prefix


def _keywords(code: str) -> dict[str, Any]:
    call = ast.parse(code, mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError(code)
    return {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg is not None}
