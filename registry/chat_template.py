"""Render conversations through a model's chat template, and check that the template keeps all words.

A chat template is a Jinja template with the extensions of `transformers` (`transformers.utils.chat_template_utils`). It
never sees the contents: each is a placeholder, so that no content can pose as a control token. Only what a template may
search for stays visible: white space at the ends, and texts that occur in the template, such as `</think>`.

Templates accept different conversations. Some know no system message, some want user and assistant to alternate, some
know no tools. So a conversation is arranged in several ways, from the original to the simplest, until the template
renders one without losing words. Of tools (`takes_tools`) only plain parts are visible, such as names and types.

A template is untrusted code. It is rendered within limits (`bounded_template`), and checked in a separate process
before its model is used (`template_check`).
"""

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from orchestrator.registry.bounded_template import BoundedEnvironment, TooMuch
from orchestrator.registry.errors import ChatTemplateError
from orchestrator.registry.messages import Message, OfferedTool, ToolCall

# For a model without a template; its answer ends where the next "### " would start.
PLAIN: Final = (
    "{% for message in messages %}### {{ message.role | capitalize }}:\n{{ message.content }}\n\n{% endfor %}"
    "### Assistant:{{ '\n' }}"
)
PLAIN_STOPS: Final = ("\n### ",)

_CLOCK: Final = "strftime_now"
_RESPONSES: Final = "tool_responses"  # a template with this name takes results of tools in the turn that called
_KEPT: Final = 64
_BETWEEN: Final = "\n\n"  # between two merged turns
_ID_LENGTH: Final = 9  # Mistral's templates require this length for the id of a tool call
# The number of a hidden text, and its escapes: one `j` or `a` per `tojson` filter, `a` with `ensure_ascii`; `r` where
# Python wrote a list or an object.
_PLACEHOLDER: Final = re.compile("\ue0f0([0-9]+)([jar]*)\ue0f1")
_WRITTEN_BY_PYTHON: Final = re.compile(r"\\ue0f0([0-9]+)([ja]*)\\ue0f1")
# Texts of a template that contents are searched for: short, with letters and with other signs.
_TELLING: Final = re.compile(r"(?=.*\w)(?=.*[^\w\s]).{2,40}", re.S)
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLAIN_ARGUMENT: Final = re.compile(r"[\w .,:/-]{0,64}")

# Variables for a template in addition to messages, such as `enable_thinking`.
Arguments: TypeAlias = Mapping[str, bool | int | float | str | None]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt. `special` marks the template's own text, in which control tokens count."""

    text: str
    special: bool


class ChatTemplate:
    """The chat template of a model, or `PLAIN` if `source` is None.

    `bos` and `eos` are the spellings of the model's start and end tokens, `control` those of all of its control tokens.
    `stops` end an answer, as the model's own end tokens do.
    """

    def __init__(self, source: str | None, bos: str, eos: str, control: frozenset[str] = frozenset()) -> None:
        environment = BoundedEnvironment(
            {"tojson": _to_json}, trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        self._environment = environment
        environment.globals["raise_exception"] = _refuse
        environment.globals[_CLOCK] = _now
        self.stops = PLAIN_STOPS if source is None else ()
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._broken = ""
        self._knows_tools = "tool" in (source or "")
        self._takes_responses = _RESPONSES in (source or "")
        # The result depends only on the arguments, and on the time if the template shows it.
        self._arranged = self._arrange if source and _CLOCK in source else lru_cache(_KEPT)(self._arrange)
        self._in_sight: re.Pattern[str] | None = None
        try:
            self._template = environment.from_string(PLAIN if source is None else source)
            self._in_sight = _searched_for(environment.parse(source or ""), control)
        except (jinja2.TemplateError, RecursionError) as error:
            self._broken = f"the model's chat template is broken: {_one_line(error)}"

    def segments(
        self,
        messages: Sequence[Message],
        arguments: Arguments | None = None,
        tools: Sequence[OfferedTool] = (),
        *,
        continued: bool = False,
    ) -> list[Segment]:
        """Return the prompt for the assistant's next message. `arguments` are variables of the template.

        If `continued`, the prompt ends with the last message, and its turn stays open. Raises ChatTemplateError if the
        template is broken, takes too long, refuses the messages in every arrangement, or would lose some of their
        words.
        """
        if self._broken:
            raise ChatTemplateError(self._broken)
        for name, value in (arguments or {}).items():
            if isinstance(value, str) and not _PLAIN_ARGUMENT.fullmatch(value):
                raise ChatTemplateError(
                    f"the argument {name} of the chat template is {value!r}; accepted: a plain word"
                )
        self._environment.begin()
        hidden = _Hidden(self._in_sight, as_fields=self._takes_responses)
        shown = hidden.tools(tools) if tools else ""
        turns = hidden.turns(messages)
        turns = (*turns[:-1], hidden.marked(turns[-1])) if continued else turns
        rendered = self._arranged(turns, tuple(sorted((arguments or {}).items())), shown, continued)
        return _cut(_up_to_mark(turns[-1], rendered) if continued else rendered, hidden.texts)

    def _arrange(self, turns: "_Turns", arguments: tuple[tuple[str, Any], ...], tools: str, continued: bool) -> str:
        refusal, lost, best = "", "", None
        arrangements = _arrangements(turns, knows_tools=self._knows_tools, takes_responses=self._takes_responses)
        for parts, arranged in itertools.product((False, True), arrangements):
            try:
                rendered = self._render(arranged, arguments, tools, parts=parts, continued=continued)
            except TooMuch:
                raise  # it would be the same in every arrangement
            except ChatTemplateError as error:
                refusal = refusal or str(error)
                continue
            missing = _lost(arranged, rendered)
            if not missing:
                return rendered
            missing_input = [role for role in missing if role != "assistant"]
            lost = lost or "".join(missing_input[:1])
            if best is None and not missing_input:
                best = rendered
        if best is None:
            raise ChatTemplateError(f"the model's chat template loses words of the {lost}" if lost else refusal)
        return best

    def _render(
        self, turns: "_Turns", arguments: tuple[tuple[str, Any], ...], tools: str, *, parts: bool, continued: bool
    ) -> str:
        tool_variables = {"tools": json.loads(tools)} if tools else {}
        variables = {"tools": None, "documents": None, **dict(arguments), **tool_variables, **self._tokens}
        begins_answer = variables.pop("add_generation_prompt", True) and not continued
        messages = [_as_dict(turn, parts=parts) for turn in turns]
        self._environment.begin_rendering()
        try:
            rendered = self._template.render(variables, messages=messages, add_generation_prompt=begins_answer)
            # A list of parts is no text to show; a list in the arguments of a call is.
            return rendered if parts else _WRITTEN_BY_PYTHON.sub("\ue0f0\\1\\2r\ue0f1", rendered)
        except TooMuch:
            raise
        except MemoryError as error:
            raise TooMuch("the model's chat template takes too much memory") from error
        except Exception as error:  # boundary: any exception from this untrusted code is a refusal
            raise ChatTemplateError(f"the model's chat template refuses the messages: {_one_line(error)}") from error


@lru_cache(_KEPT)
def why_words_are_lost(source: str) -> str | None:
    """Return why a chat template fails for some conversation, or None.

    Either it is broken, or it refuses or loses words of the system or the user in every arrangement.
    """
    template = ChatTemplate(source, "<s>", "</s>")
    rows = (("system", "s"), ("user", "u"), ("assistant", "a"), ("user", "v"))
    conversation = tuple(Message(role, content) for role, content in rows)
    for messages in (conversation[1:2], conversation[:2], conversation[1:], conversation):
        try:
            template.segments(messages)
        except ChatTemplateError as error:
            roles = ", ".join(message.role for message in messages)
            return f"{error} (in a conversation of the roles {roles})"
    return None


@lru_cache(_KEPT)
def takes_tools(source: str | None) -> bool:
    """Return whether a chat template shows tools to the model, with and without a system message."""
    if source is None or "tools" not in source:
        return False
    template = ChatTemplate(source, "<s>", "</s>")
    for messages in ((Message("user", "u"),), (Message("system", "s"), Message("user", "u"))):
        try:
            without, shown = template.segments(messages), template.segments(messages, tools=(_SAMPLE,))
        except ChatTemplateError:
            return False
        if any(_SAMPLE.name in segment.text for segment in without):
            return False
        if not any(_SAMPLE.name in segment.text for segment in shown):
            return False
    return True


_SAMPLE: Final = OfferedTool(
    "sample_tool_7", "Looks a word up.", '{"type": "object", "properties": {"word": {"type": "string"}}}'
)


class _Call(NamedTuple):
    # A tool call with hidden texts. `arguments` are as the model wrote them, `fields` the same as a JSON object.
    id: str
    name: str
    arguments: str
    fields: str
    is_broken: bool  # the arguments are no JSON object; `fields` then has their text as `arguments`
    text: str  # for models whose prompt explains in words how to call tools


class _Response(NamedTuple):
    # The result of a tool with hidden texts; `fields` if it is a JSON object.
    tool: str
    content: str
    fields: str


class _Turn(NamedTuple):
    # A message with hidden texts. `as_text`: a tool's result as a message of the user. `fields`: as a JSON object, if
    # it is one.
    role: str
    content: str
    calls: tuple[_Call, ...] = ()
    call_id: str = ""
    tool: str = ""
    as_text: str = ""
    fields: str = ""
    responses: tuple[_Response, ...] = ()  # to the calls of this turn
    parsed: bool = True  # the template gets the arguments of calls as objects, not as JSON
    wraps_broken: bool = False  # the template gets an object even if the arguments are not one


_Turns: TypeAlias = tuple[_Turn, ...]


class _Hidden:
    # Replaces texts by placeholders, except for what `in_sight` matches. `texts` are the originals by number.
    def __init__(self, in_sight: re.Pattern[str] | None, *, as_fields: bool) -> None:
        self.texts: list[str] = []
        self._in_sight = in_sight
        self._as_fields = as_fields  # results of tools are needed as JSON objects, too

    def turns(self, messages: Sequence[Message]) -> _Turns:
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        return tuple(self._turn(message, names) for message in messages)

    def tools(self, tools: Sequence[OfferedTool]) -> str:
        return json.dumps([self._tool(tool) for tool in tools], ensure_ascii=False)

    def _tool(self, tool: OfferedTool) -> dict[str, Any]:
        function = {
            "name": self._key(tool.name),
            "description": self._hide(tool.description),
            "parameters": self._each(_parsed(tool.parameters), self._key),
        }
        return {"type": "function", "function": function}

    def _each(self, value: Any, hide: Callable[[str], str]) -> Any:
        # JSON with every text hidden.
        if isinstance(value, str):
            return hide(value)
        if isinstance(value, list):
            return [self._each(item, hide) for item in value]
        if isinstance(value, dict):
            return {self._key(name): self._each(item, hide) for name, item in value.items()}
        return value

    def marked(self, turn: "_Turn") -> "_Turn":
        # An empty placeholder, up to which the turn is continued.
        self.texts.append("")
        return turn._replace(content=f"{turn.content}\ue0f0{len(self.texts) - 1}\ue0f1")

    def _turn(self, message: Message, names: Mapping[str, str]) -> _Turn:
        content, call_id = self._hide(message.content), message.tool_call_id
        if message.role == "tool":
            shown = self._hide(tool_result_text(call_id, message.content))
            fields = self._fields(message.content) if self._as_fields else None
            return _Turn(
                "tool",
                content,
                (),
                _plain_id(call_id),
                self._whole(names.get(call_id, "")),
                shown,
                "" if fields is None else json.dumps(fields, ensure_ascii=False),
            )
        return _Turn(message.role, content, tuple(self._call(call) for call in message.tool_calls))

    def _call(self, call: ToolCall) -> _Call:
        written = "{}" if _are_empty(call.arguments) else call.arguments
        arguments, fields = self._whole(written), self._fields(written)
        return _Call(
            _plain_id(call.id),
            self._whole(call.name),
            arguments,
            json.dumps({"arguments": arguments} if fields is None else fields, ensure_ascii=False),
            fields is None,
            self._whole(tool_call_text(call.name, written)),
        )

    def _fields(self, arguments: str) -> dict[str, Any] | None:
        parsed = _parsed(arguments)
        if not isinstance(parsed, dict):
            return None
        try:
            return {self._key(name): self._each(value, self._hide) for name, value in parsed.items()}
        except RecursionError:  # nested too deeply
            return None

    def _key(self, name: str) -> str:
        # Plain names stay visible, since a template may sort or search by them.
        return name if _PLAIN_ID.fullmatch(name) else self._whole(name)

    def _hide(self, text: str) -> str:
        if self._in_sight is None:
            return self._piece(text)
        pieces, end = [], 0
        for match in self._in_sight.finditer(text):
            pieces += [self._piece(text[end : match.start()]), match[0]]
            end = match.end()
        return "".join([*pieces, self._piece(text[end:])])

    def _piece(self, text: str) -> str:
        core = text.strip()
        if not core:
            return text
        start = text.index(core)
        return text[:start] + self._whole(core) + text[start + len(core) :]

    def _whole(self, text: str) -> str:
        if not text:
            return ""
        self.texts.append(text)
        return f"\ue0f0{len(self.texts) - 1}\ue0f1"


def _are_empty(arguments: str) -> bool:
    # Some models and clients leave the arguments out, or write null.
    return arguments.strip() in ("", "null")


def tool_call_text(name: str, arguments: str) -> str:
    """Return a tool call in the JSON form of prompts that explain in words how to call tools."""
    try:
        return json.dumps({"tool": name, "arguments": _parsed(arguments)}, ensure_ascii=False)
    except RecursionError:
        return json.dumps({"tool": name, "arguments": arguments}, ensure_ascii=False)


def tool_result_text(call_id: str, result: str) -> str:
    """Return the result of a tool call as a message of the user."""
    return f"[{call_id or 'tool'}]\n{result}"


def _parsed(arguments: str) -> Any:
    try:
        parsed = json.loads(arguments)
        json.dumps(parsed, ensure_ascii=False).encode()  # an escape such as \ud83d alone is no Unicode
    except (ValueError, RecursionError):  # a model may have written anything
        return arguments
    return parsed


def _plain_id(call_id: str) -> str:
    return call_id if _PLAIN_ID.fullmatch(call_id) else _short_id(call_id)


def _short_id(call_id: str) -> str:
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_LENGTH] if call_id else ""


# Arrange a conversation


def _arrangements(turns: _Turns, *, knows_tools: bool, takes_responses: bool) -> Iterator[_Turns]:
    """Yield ways to lay out a conversation, each once: first as it is, then more and more simply.

    If the template `knows_tools`, tool calls and results come as such, then with ids for Mistral, then with arguments
    in JSON, then one call per turn for Llama; arguments that are no JSON object as they are, then in an object. If it
    `takes_responses`, as Gemma's does, results first come in the turns that called. At last, and for other templates,
    calls come as text. Each comes with the original turns, with adjacent turns of a role merged, and with system
    messages as the user's. An assistant's first turn gets an empty user turn in front.
    """
    native: tuple[Callable[[_Turns], _Turns], ...] = (_unchanged, _with_short_ids, _with_json, _one_by_one)
    native = (_with_responses, *native) if takes_responses else native
    turns = _in_order_of_calls(turns)
    arrangements: dict[_Turns, None] = {}
    if not any(turn.calls or turn.role == "tool" for turn in turns):
        shown = [turns]
    elif knows_tools:
        shown = [lay_out(calls) for calls in (turns, _with_wrapped(turns)) for lay_out in native] + [_as_text(turns)]
    else:
        shown = [_as_text(turns)]
    for laid_out, lay_out in itertools.product(shown, (_unchanged, _merged, _without_system)):
        arranged = lay_out(laid_out)
        arrangements |= {arranged: None, _begun_by_user(arranged): None}
    yield from arrangements


def _unchanged(turns: _Turns) -> _Turns:
    return turns


def _in_order_of_calls(turns: _Turns) -> _Turns:
    # Templates without ids tell the results of several calls apart by their order only.
    arranged: list[_Turn] = []
    places: dict[str, int] = {}
    for role, group in itertools.groupby(turns, key=lambda turn: turn.role):
        together = list(group)
        if role == "assistant":
            places = {call.id: index for index, call in enumerate(together[-1].calls)}
        elif role == "tool" and all(turn.call_id in places for turn in together):
            together.sort(key=lambda turn: places[turn.call_id])
        arranged += together
    return tuple(arranged)


def _with_responses(turns: _Turns) -> _Turns:
    # Results in the turn of their calls, which the answer to them continues.
    arranged: list[_Turn] = []
    for turn in turns:
        last = arranged[-1] if arranged else None
        if turn.role == "tool" and last is not None and last.calls and not last.content:
            response = _Response(turn.tool or turn.call_id, turn.content, turn.fields)
            arranged[-1] = last._replace(responses=(*last.responses, response))
            continue
        if turn.role == "assistant" and turn.content:
            if last is not None and last.responses and not last.content:
                arranged[-1] = last._replace(content=turn.content)
            else:
                arranged.append(turn._replace(calls=()))
            turn = turn._replace(content="")
            if not turn.calls:
                continue
        arranged.append(turn)
    return tuple(arranged)


def _with_short_ids(turns: _Turns) -> _Turns:
    return tuple(
        turn._replace(
            call_id=_short_id(turn.call_id),
            calls=tuple(call._replace(id=_short_id(call.id)) for call in turn.calls),
        )
        for turn in turns
    )


def _with_json(turns: _Turns) -> _Turns:
    return tuple(turn._replace(parsed=False) for turn in turns)


def _with_wrapped(turns: _Turns) -> _Turns:
    return tuple(
        turn._replace(wraps_broken=True) if any(call.is_broken for call in turn.calls) else turn for turn in turns
    )


def _one_by_one(turns: _Turns) -> _Turns:
    # Each call in its own turn, followed by its result, and after the text before it.
    arranged: list[_Turn] = []
    placed: set[int] = set()
    for index, turn in enumerate(turns):
        if index in placed:
            continue
        if not turn.calls:
            arranged.append(turn)
            continue
        arranged += [turn._replace(calls=())] if turn.content else []
        for call in turn.calls:
            arranged.append(turn._replace(content="", calls=(call,)))
            results = itertools.takewhile(lambda place: turns[place].role == "tool", range(index + 1, len(turns)))
            result = next((place for place in results if turns[place].call_id == call.id and place not in placed), None)
            if result is not None:
                placed.add(result)
                arranged.append(turns[result])
    return tuple(arranged)


def _as_text(turns: _Turns) -> _Turns:
    # Calls as the assistant's words, results as the user's.
    return tuple(
        _Turn("user", turn.as_text)
        if turn.role == "tool"
        else _Turn(turn.role, "\n".join(filter(None, [turn.content, *(call.text for call in turn.calls)])))
        for turn in turns
    )


def _merged(turns: _Turns) -> _Turns:
    # adjacent turns of one role, except tool results and turns that contain some
    merged: list[_Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role != "tool" and not (merged[-1].responses or turn.responses):
            content = _BETWEEN.join(filter(None, (merged[-1].content, turn.content)))
            merged[-1] = turn._replace(content=content, calls=merged[-1].calls + turn.calls)
        else:
            merged.append(turn)
    return tuple(merged)


def _without_system(turns: _Turns) -> _Turns:
    return _merged(tuple(turn._replace(role="user") if turn.role == "system" else turn for turn in turns))


def _begun_by_user(turns: _Turns) -> _Turns:
    first = next((index for index, turn in enumerate(turns) if turn.role != "system"), 0)
    return (*turns[:first], _Turn("user", ""), *turns[first:]) if turns[first].role == "assistant" else turns


def _as_dict(turn: _Turn, *, parts: bool) -> dict[str, Any]:
    content = [{"type": "text", "text": turn.content}] if parts else turn.content  # some templates expect a list
    message: dict[str, Any] = {"role": turn.role, "content": content}
    if turn.calls:
        message["tool_calls"] = [_call_dict(call, turn) for call in turn.calls]
    if turn.responses:
        message[_RESPONSES] = [_response_dict(response) for response in turn.responses]
    if turn.call_id:
        message["tool_call_id"] = turn.call_id
    if turn.tool:
        message["name"] = turn.tool
    return message


def _response_dict(response: _Response) -> dict[str, Any]:
    return {"name": response.tool, "response": json.loads(response.fields) if response.fields else response.content}


def _call_dict(call: _Call, turn: _Turn) -> dict[str, Any]:
    arguments = json.loads(call.fields) if _takes_fields(call, turn) else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _takes_fields(call: _Call, turn: _Turn) -> bool:
    return turn.parsed and (turn.wraps_broken or not call.is_broken)


def _up_to_mark(turn: _Turn, rendered: str) -> str:
    (number, _) = _PLACEHOLDER.findall(turn.content)[-1]
    marks = [match.start() for match in _PLACEHOLDER.finditer(rendered) if match[1] == number]
    if not marks:
        raise ChatTemplateError("the model's chat template leaves the last message out, so it cannot be continued")
    return rendered[: marks[-1]]


def _lost(turns: _Turns, rendered: str) -> list[str]:
    numbers = _numbers(rendered)
    return [turn.role for turn in turns if not _words(turn) <= numbers]


def _words(turn: _Turn) -> set[str]:
    placeholders = _PLACEHOLDER.findall(turn.content)
    # An assistant's thoughts may be missing.
    numbers = {number for number, _ in (placeholders[-1:] if turn.role == "assistant" else placeholders)}
    for response in turn.responses:
        numbers |= _numbers(response.fields or response.content)
    for call in turn.calls:
        numbers |= _numbers(call.name)
        numbers |= _numbers(call.fields if _takes_fields(call, turn) else call.arguments)
    return numbers


def _numbers(text: str) -> set[str]:
    return {number for number, _ in _PLACEHOLDER.findall(text)}


def _cut(rendered: str, texts: Sequence[str]) -> list[Segment]:
    segments, end = [], 0
    for match in _PLACEHOLDER.finditer(rendered):
        segments.append(Segment(rendered[end : match.start()], special=True))
        text = texts[int(match[1])]
        for mark in match[2]:
            text = _python_text(text) if mark == "r" else json.dumps(text, ensure_ascii=mark == "a")[1:-1]
        segments.append(Segment(text, special=False))
        end = match.end()
    segments.append(Segment(rendered[end:], special=True))
    return [segment for segment in segments if segment.text]


def _python_text(text: str) -> str:
    # Inside of single quotes, which Python wrote around the placeholder.
    return repr(f'"{text}')[2:-1]


# Extensions, filters and functions for templates


class _Generation(Extension):
    # The tag `generation` marks the assistant's words for training. It renders its content.
    tags = {"generation"}  # noqa: RUF012 (as Jinja declares it)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _searched_for(template: nodes.Template, control: frozenset[str]) -> re.Pattern[str] | None:
    # Texts that a template may search for in contents, the longest first, except those that are part of a control token
    # or contain one.
    constants = (node.value.strip() for node in template.find_all(nodes.Const) if isinstance(node.value, str))
    candidates = {text for text in constants if _TELLING.fullmatch(text)}
    inner = "\0".join(control)
    begins = {token[:size] for token in control for size in range(1, len(token) + 1)}
    ends = {token[-size:] for token in control for size in range(1, len(token) + 1)}
    texts = [
        text
        for text in candidates
        if text not in inner
        and not any(text[start:] in begins or text[: start + 1] in ends for start in range(len(text)))
        and not any(text[a:b] in control for a, b in itertools.combinations(range(len(text) + 1), 2))
    ]
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Placeholders record how their text has to be escaped.
    dumped = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    marked = _PLACEHOLDER.sub(f"\ue0f0\\1\\2{'a' if ensure_ascii else 'j'}\ue0f1", dumped)
    return re.sub(r"[^\x00-\x7f\ue0f0\ue0f1]", _escaped, marked) if ensure_ascii else marked


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
