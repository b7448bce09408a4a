"""Calls are sent as they come where a grammar forms them, and otherwise when they are complete and right."""

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.api.errors import AnswerRefused
from orchestrator.api.limiter import CallArguments, CallEnded, CallStarted, Piece
from orchestrator.api.openai.calling import calling
from orchestrator.api.openai.logprobs import ListedTokens, tokens_of_text
from orchestrator.api.openai.tools import CallTask, ClientTool, ClientTools, with_tools
from orchestrator.engine.client.engine import Completion, OnText, TextPiece
from orchestrator.engine.contract import Finish, Generation, Message, TokenLogprob
from orchestrator.registry.call_syntax import (
    DEEPSEEK,
    DEEPSEEK_V31,
    HARMONY,
    HERMES,
    LLAMA3,
    MISTRAL,
    QWEN_CODER,
    CallSyntax,
)
from orchestrator.task.events import Usage

WEATHER: Final = ClientTool(
    "weather", "", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)
CLOCK: Final = ClientTool("clock", "", {"type": "object", "properties": {}, "maxProperties": 0})
RIGHT: Final = '{"name": "weather", "arguments": {"city": "B"}}'
WRONG: Final = '{"name": "weather", "arguments": {"town": "B"}}'
MOON: Final = '{"name": "moon", "arguments": {}}'
TIMED: Final = '{"name": "clock", "arguments": {}}'
XML: Final = "<tool_call>\n<function=weather>\n<parameter=city>\nB\n</parameter>\n</function>\n</tool_call>"


class Asked:
    """A model that gives these answers, one character at a time, and keeps what it was asked."""

    def __init__(self, *answers: str, finish: Finish = "stop", listed: bool = False) -> None:
        """Each character is a token, which is told with it where they are `listed`."""
        self.requests: list[Generation] = []
        self._answers = list(answers)
        self._finish = finish
        self._listed = listed

    async def __call__(self, request: Generation, on_text: OnText, on_thought: OnText) -> Completion:
        self.requests.append(request)
        text = self._answers.pop(0)
        tokens = [TokenLogprob(ord(one), one.encode(), -1.0) for one in text] if self._listed else []
        for index, character in enumerate(text):
            on_text(TextPiece(character, [tokens[index]]) if tokens else character)
        return Completion(text, self._finish, Usage(output_tokens=1), logprobs=tuple(tokens))


async def answered(
    asked: Asked, syntax: CallSyntax | None, choice: Any = "auto", *, schema: Any = None, **more: Any
) -> tuple[Completion, list[Piece]]:
    """Return a model's answer, and the pieces that were sent of it."""
    task = CallTask(toolbox=ClientTools.of([WEATHER, CLOCK], choice, **more), syntax=syntax, schema=schema)
    generation = with_tools(Generation(messages=(Message("user", "?"),), schema=schema), task)
    assert generation.problem() is None
    sent: list[Piece] = []
    completion = await calling(asked, "m", generation, task)(sent.append, lambda _: None)
    return completion, sent


def arguments(sent: Sequence[Piece], index: int) -> list[str]:
    return [piece.text for piece in sent if isinstance(piece, CallArguments) and piece.index == index]


def calls(completion: Completion) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in completion.calls]


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        (HERMES, f"I look.\n<tool_call>\n{RIGHT}\n</tool_call>"),
        (LLAMA3, RIGHT.replace("arguments", "parameters")),
        (LLAMA3, f"<|python_tag|>{RIGHT}"),
        (MISTRAL, f"[TOOL_CALLS] [{RIGHT}]"),
        (
            DEEPSEEK,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
            '{"city": "B"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        ),
        (
            DEEPSEEK_V31,
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "B"}<｜tool▁call▁end｜>',
        ),
        (HARMONY, '<|channel|>commentary to=functions.weather json<|message|>{"city": "B"}'),
    ],
)
async def test_arguments_are_sent_as_they_come_where_a_grammar_forms_them(syntax: CallSyntax, text: str) -> None:
    completion, sent = await answered(Asked(text), syntax)
    assert calls(completion) == [("weather", {"city": "B"})]
    assert arguments(sent, 0) == list('{"city": "B"}')
    started = next(piece for piece in sent if isinstance(piece, CallStarted))
    assert (started.id, started.name) == (completion.calls[0].id, "weather")
    assert sent[-1] == CallEnded(0)
    assert "".join(piece for piece in sent if isinstance(piece, str)) == completion.text


@pytest.mark.parametrize(
    ("syntax", "text", "index"),
    [
        (QWEN_CODER, XML, 0),
        (None, f"```json\n{RIGHT}\n```", 0),
        (None, json.dumps({"tool": "weather", "arguments": {"city": "B"}}), 0),
        (HERMES, f"<tool_call>{RIGHT}</tool_call><tool_call>{TIMED}</tool_call>", 1),
    ],
)
async def test_other_calls_are_sent_as_a_whole(syntax: CallSyntax | None, text: str, index: int) -> None:
    completion, sent = await answered(Asked(text), syntax)
    assert len(arguments(sent, index)) == 1
    assert len(completion.calls) == index + 1


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        (HERMES, f"Bare: {RIGHT}"),
        (HERMES, RIGHT),
        (HERMES, f"```json\n{RIGHT}\n```"),
        (LLAMA3, f"See: {RIGHT}"),
        (HERMES, f"One writes <tool_call>{RIGHT}</tool_call> for it."),
        (HERMES, f"So:\n```xml\n<tool_call>\n{RIGHT}\n</tool_call>\n```"),
        (HERMES, f"[TOOL_CALLS] [{RIGHT}]"),
        (MISTRAL, "Mistral models write [TOOL_CALLS] before a list of calls."),
        (QWEN_CODER, f"<tool_call>\n{RIGHT}\n</tool_call>"),
        (None, f"You could answer: {RIGHT}"),
    ],
)
async def test_a_text_about_calls_is_an_answer(syntax: CallSyntax | None, text: str) -> None:
    model = Asked(text)
    completion, sent = await answered(model, syntax)
    assert (completion.text, completion.calls) == (text, ())
    assert "".join(piece for piece in sent if isinstance(piece, str)) == text
    assert len(model.requests) == 1


@pytest.mark.parametrize("syntax", [HERMES, QWEN_CODER])
async def test_a_model_that_may_call_is_never_made_to(syntax: CallSyntax) -> None:
    model = Asked('<tool_call>\n{"name": "moon", "arguments": {}}\n</tool_call>', "I cannot.")
    if syntax is QWEN_CODER:
        model = Asked(XML.replace("</parameter>", "</paramter>"), "I cannot.")
    completion, _ = await answered(model, syntax)
    assert (completion.text, completion.calls) == ("I cannot.", ())
    assert not any(request.grammar or request.schema for request in model.requests)


async def test_a_broken_call_is_asked_for_once_more_with_what_is_wrong() -> None:
    wrong = f"Hm.\n<tool_call>{MOON}</tool_call>"
    model = Asked(wrong, f"<tool_call>{RIGHT}</tool_call>")
    completion, sent = await answered(model, HERMES)
    assert (completion.text, calls(completion), completion.finish) == ("Hm.", [("weather", {"city": "B"})], "stop")
    assert completion.usage.output_tokens == 2
    first, second = model.requests
    assert second == replace(first, messages=second.messages)
    assert second.messages[1] == Message("assistant", wrong)
    assert "there is no tool 'moon'" in second.messages[2].content
    assert [piece.index for piece in sent if isinstance(piece, CallStarted)] == [0]


async def test_a_message_that_is_continued_is_not_continued_when_its_call_is_asked_for_again() -> None:
    model = Asked(f"<tool_call>{MOON}</tool_call>", f"<tool_call>{RIGHT}</tool_call>")
    task = CallTask(toolbox=ClientTools.of([WEATHER], "auto"), syntax=HERMES)
    messages = (Message("user", "?"), Message("assistant", "Well, "))
    generation = with_tools(Generation(messages=messages, continues=True), task)
    assert (await calling(model, "m", generation, task)(lambda _: None, lambda _: None)).calls
    assert [request.problem() for request in model.requests] == [None, None]


async def test_calls_that_were_right_are_kept_when_a_later_one_is_broken() -> None:
    model = Asked(f"<tool_call>[{RIGHT}, {MOON}]</tool_call>", f"<tool_call>{TIMED}</tool_call>")
    completion, sent = await answered(model, HERMES)
    assert calls(completion) == [("weather", {"city": "B"}), ("clock", {})]
    assert [piece.index for piece in sent if isinstance(piece, CallStarted)] == [0, 1]


@pytest.mark.parametrize(
    ("syntax", "wrong"),
    [
        (None, WRONG),
        (HERMES, f"<tool_call>{WRONG}</tool_call>"),
        (HERMES, f"<tool_call>{MOON}</tool_call>"),
        (QWEN_CODER, XML.replace("city", "town")),
    ],
)
async def test_what_is_broken_twice_is_refused(syntax: CallSyntax | None, wrong: str) -> None:
    model = Asked(wrong, wrong)
    with pytest.raises(AnswerRefused, match="m does not obey what was asked for"):
        await answered(model, syntax)
    # What the grammar of the engine makes impossible was sent as it came, and nothing can repair it.
    assert len(model.requests) == (1 if wrong == f"<tool_call>{WRONG}</tool_call>" else 2)


async def test_a_call_that_has_to_be_made_is_under_a_grammar() -> None:
    model = Asked(f"<tool_call>{TIMED}</tool_call>")
    completion, _ = await answered(model, HERMES, {"type": "function", "name": "clock"})
    assert calls(completion) == [("clock", {})]
    (request,) = model.requests
    assert "weather" not in (request.grammar or "")
    assert [tool.name for tool in request.tools] == ["clock"]
    told = Asked("{}")
    assert calls((await answered(told, None, {"type": "function", "name": "clock"}))[0]) == [("clock", {})]
    assert told.requests[0].schema == CLOCK.schema


async def test_further_calls_are_left_out_where_only_one_is_wanted() -> None:
    text = f"<tool_call>[{RIGHT}, {TIMED}]</tool_call>"
    completion, sent = await answered(Asked(text), HERMES, parallel=False)
    assert len(completion.calls) == len([piece for piece in sent if isinstance(piece, CallStarted)]) == 1


async def test_an_answer_without_a_call_matches_its_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    completion, _ = await answered(Asked('{"n": 1}'), HERMES, schema=schema)
    assert (completion.text, completion.calls) == ('{"n": 1}', ())
    completion, _ = await answered(Asked(f"<tool_call>{RIGHT}</tool_call>"), HERMES, schema=schema)
    assert (completion.text, len(completion.calls)) == ("", 1)
    with pytest.raises(AnswerRefused, match="'n' is a required property"):
        await answered(Asked("{}"), HERMES, schema=schema)
    checked = {**schema, "minProperties": 1}
    completion, sent = await answered(Asked("{}", '{"n": 2}'), HERMES, schema=checked)
    assert sent == [completion.text] == ['{"n": 2}']


async def test_each_piece_of_an_answer_has_its_tokens_where_they_are_asked_for() -> None:
    text = f"I look.\n<tool_call>\n{RIGHT}\n</tool_call>"
    model = Asked(text, listed=True)
    completion, sent = await answered(model, HERMES)
    said = [piece for piece in sent if isinstance(piece, TextPiece)]
    assert "".join(said) == "I look."
    assert len(said) > 1
    begun = [piece for piece in sent if isinstance(piece, CallStarted | CallArguments)]
    listed = [one for piece in (*said, *begun) for one in piece.logprobs]
    assert "".join(one.data.decode() for one in listed) == text[: text.index("}") + 1]
    assert "".join(one.data.decode() for one in completion.logprobs) == text
    assert b"".join(one.data for one in tokens_of_text(completion)) == b"I look."


async def test_the_tokens_of_all_that_was_sent_are_told_when_the_model_is_asked_again() -> None:
    wrong = f"Hm.\n<tool_call>{MOON}</tool_call>"
    completion, sent = await answered(Asked(wrong, f"<tool_call>{RIGHT}</tool_call>", listed=True), HERMES)
    tokens = ListedTokens()
    streamed = [one for piece in sent for one in tokens.take_with(piece)] + (tokens.rest(completion) or [])
    assert streamed == list(completion.logprobs)
    assert b"".join(one.data for one in streamed).endswith(b"</tool_call>")


async def test_a_cut_off_answer_is_passed_on() -> None:
    completion, _ = await answered(Asked("<tool_call>\n{", finish="length"), HERMES)
    assert (completion.text, completion.calls, completion.finish) == ("<tool_call>\n{", (), "length")


async def test_arguments_are_checked_in_another_thread() -> None:
    checked_in: list[threading.Thread] = []

    class Watched(ClientTools):
        def problem(self, name: str, arguments: str) -> str:
            checked_in.append(threading.current_thread())
            return super().problem(name, arguments)

    task = CallTask(toolbox=Watched((WEATHER,)), syntax=HERMES)
    generation = with_tools(Generation(messages=(Message("user", "?"),)), task)
    model = Asked(f"<tool_call>{RIGHT}</tool_call>")
    assert (await calling(model, "m", generation, task)(lambda _: None, lambda _: None)).calls
    assert checked_in
    assert threading.main_thread() not in checked_in
