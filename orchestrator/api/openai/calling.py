"""Generate an answer that may call tools: read the calls as they come, check them, have broken ones repaired.

A call that a grammar forms is streamed. Any other call is sent when it is complete and valid. If a call is broken (no
JSON, an unknown tool, arguments that do not match), the model is told what is wrong and answers again. It is forced to
call then only if it was before. AnswerRefused is raised when no attempt is left.

Arguments and texts are checked against their schemas in threads, because one check may take a second.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.api.dependencies import aside
from orchestrator.api.errors import AnswerRefused
from orchestrator.api.limiter import CallArguments, CallEnded, CallStarted, Generate, Piece
from orchestrator.api.openai.protocol import prompt_messages
from orchestrator.api.openai.tools import CallTask, ClientTools
from orchestrator.engine.client.engine import Completion, OnText, TextPiece
from orchestrator.engine.client.grammar import left_to_validator
from orchestrator.engine.contract import Generation, Message, OfferedTool, TokenLogprob, ToolCall
from orchestrator.engine.tool_calls import (
    ArgumentsDelta,
    CallEvent,
    TextDelta,
    ToolCallBroken,
    ToolCallFinished,
    ToolCallStarted,
)
from orchestrator.errors import OrchestratorError
from orchestrator.run.steps.attempt import added
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.task.events import Usage
from orchestrator.task.taskir.validation import BadSchema, OutputSchema, SchemaMismatch

# The finish reasons of an answer that the model did not end itself.
CUT_OFF: Final = ("length", "deadline", "repetition")
# Generates as `Pool.generate` does, and raises what that raises.
AskModel = Callable[[Generation, OnText, OnText], Awaitable[Completion]]


def tool_prompt(
    messages: Sequence[Message], role: ResolvedRole, toolbox: ClientTools
) -> tuple[tuple[Message, ...], tuple[OfferedTool, ...]]:
    """Return the prompt that asks `role` to continue `messages`, and the tools for its chat template.

    If the template takes no tools, the prompt describes them. Raises InputError.
    """
    if role.calls is None or not toolbox.tools:
        return prompt_messages(messages, role, toolbox.instructions), ()
    return prompt_messages(messages, role, ""), toolbox.offered


def calling(ask: AskModel, model: str, generation: Generation, task: CallTask) -> Generate:
    """Return what generates an answer with tools. `generation` is the result of `with_tools`.

    `ask` queries the model, which errors call `model`. Raises AnswerRefused if a call stays broken, or if the answer
    does not match its schema.
    """

    async def generate(on_piece: Callable[[Piece], None], on_thought: Callable[[str], None]) -> Completion:
        request, usages, calls, reasoning = generation, list[Usage](), list[ToolCall](), ""
        texts, listed = list[str](), list[TokenLogprob]()
        while True:
            reader = _AnswerReader(task, on_piece, request, len(calls))
            completion = await _read_answer(reader, ask(request, reader.push, on_thought))
            usages.append(completion.usage)
            calls += reader.calls
            texts += reader.sent
            reasoning = reasoning or completion.reasoning
            if not reader.wrong or completion.finish in CUT_OFF:
                break
            if reader.has_sent_wrong or len(usages) == task.most_asked:
                raise AnswerRefused(f"the answer of {model} does not obey what was asked for: {reader.wrong}")
            listed += reader.listed
            request = _repair_request(generation, completion.text, reader.wrong)
        is_whole = bool(calls) and not reader.wrong
        return replace(
            completion,
            text="".join(texts),
            calls=tuple(calls),
            finish="stop" if is_whole else completion.finish,
            usage=added(*usages) if len(usages) > 1 else completion.usage,
            reasoning=reasoning,
            logprobs=(*listed, *completion.logprobs),
        )

    return generate


async def _read_answer(reader: "_AnswerReader", answering: Awaitable[Completion]) -> Completion:
    outcome: Completion | OrchestratorError
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(reader.read())
        try:
            outcome = await answering
        except OrchestratorError as error:  # the group would hide it in another
            outcome = error
        reader.end(outcome if isinstance(outcome, Completion) else None)
    if isinstance(outcome, OrchestratorError):
        raise outcome
    return outcome


class _AnswerReader:
    # Reads the answer of a model to `request`, and sends its valid parts. `first` is the index of the first call.
    def __init__(self, task: CallTask, on_piece: Callable[[Piece], None], request: Generation, first: int) -> None:
        self.calls: list[ToolCall] = []
        self.sent: list[str] = []  # pieces of text
        self.listed: list[TokenLogprob] = []  # tokens that were sent with pieces, if the request asks for logprobs
        self.wrong = ""  # what is wrong with the answer; empty if nothing is
        self.has_sent_wrong = False  # a part of what is wrong was sent, so that nothing can repair it
        self._task = task
        self._send = on_piece
        self._unlisted: list[TokenLogprob] = []
        self._first = first
        self._parser = task.parser(forced=task.toolbox.forced)
        guided = () if request.guided is None else request.guided.grammars
        formed = task.toolbox.schemas if request.grammar or request.schema is not None else {name for name, _ in guided}
        # Tools whose calls a grammar forms, so that they can be streamed.
        self._formed = task.expressible.intersection(formed)
        # Text is held back if its schema has parts that only a validator checks.
        self._holds_text = task.schema is not None and next(left_to_validator(task.schema), None) is not None
        self._texts: list[str] = []
        self._length = 0
        self._id = ""
        self._is_sent = False
        self._broken_at: int | None = None
        # Pieces to read, then the whole answer, or None if it failed.
        self._pieces: asyncio.Queue[str | Completion | None] = asyncio.Queue()

    def push(self, text: str) -> None:
        self._pieces.put_nowait(text)

    def end(self, completion: Completion | None) -> None:
        """End the answer; None means that it failed."""
        self._pieces.put_nowait(completion)

    async def read(self) -> None:
        while isinstance(piece := await self._pieces.get(), str):
            await self._read_piece(piece)
        if piece is not None:
            await self._finish(piece)

    async def _read_piece(self, text: str) -> None:
        self._length += len(text)
        if isinstance(text, TextPiece):
            self._unlisted += text.logprobs
        for event in self._parser.push(text):
            await self._take(event)

    async def _finish(self, completion: Completion) -> None:
        await self._read_piece(completion.text[self._length :])
        for event in self._parser.finish():
            await self._take(event)
        cut = completion.finish in CUT_OFF
        # A call that is cut off becomes a part of the text.
        if cut and self._broken_at is not None:
            self._say(completion.text[self._broken_at :], sent=self.has_sent_wrong)
        if not self.wrong and not self.calls:
            await self._check_text(cut=cut)

    async def _take(self, event: CallEvent) -> None:
        # Without parallel calls only the first one counts.
        if self.wrong or (self.calls and not self._task.toolbox.parallel and not isinstance(event, TextDelta)):
            return
        match event:
            case TextDelta(text):
                self._say(text)
            case ToolCallStarted(_, name):
                self._id, self._is_sent = self._task.new_id(), name in self._formed
                if self._is_sent:
                    self._send(CallStarted(self._index, self._id, name, self._tokens()))
            case ArgumentsDelta(_, text):
                if self._is_sent:
                    self._send(CallArguments(self._index, text, self._tokens()))
            case ToolCallFinished(_, name, arguments):
                await self._end_call(name, arguments)
            case ToolCallBroken(index, at, problem):
                self.wrong, self._broken_at = f"a call of a tool is broken: {problem}", at
                self.has_sent_wrong = self._is_sent and index is not None

    async def _end_call(self, name: str, arguments: str) -> None:
        if problem := await aside(lambda: self._task.toolbox.problem(name, arguments)):
            self.wrong, self.has_sent_wrong = problem, self._is_sent
            return
        if not self._is_sent:
            self._send(CallStarted(self._index, self._id, name))
            self._send(CallArguments(self._index, arguments, self._tokens()))
        self._send(CallEnded(self._index))
        self.calls.append(ToolCall(self._id, name, arguments))
        self._is_sent = False

    @property
    def _index(self) -> int:
        return self._first + len(self.calls)

    def _say(self, text: str, *, sent: bool = False) -> None:
        # `sent`: it was sent already, as a part of a call.
        self._texts.append(text)
        if not self._holds_text:
            self.sent.append(text)
            if not sent:
                self._send_text(text)

    async def _check_text(self, *, cut: bool) -> None:
        text = "".join(self._texts)
        if self._task.toolbox.forced:
            self.wrong = "it is no call of a tool that was offered"
        elif self._task.schema is not None and not cut:
            schema = self._task.schema
            try:
                await aside(lambda: OutputSchema(schema if isinstance(schema, Mapping) else None).read(text))
            except (SchemaMismatch, BadSchema) as error:
                self.wrong, self.has_sent_wrong = str(error), not self._holds_text
        if self._holds_text and (cut or not self.wrong):
            self.sent.append(text)
            self._send_text(text)

    def _send_text(self, text: str) -> None:
        tokens = self._tokens()
        self._send(TextPiece(text, tokens) if tokens else text)

    def _tokens(self) -> tuple[TokenLogprob, ...]:
        # The tokens since the last piece; they are sent with the next one.
        tokens, self._unlisted = tuple(self._unlisted), []
        self.listed += tokens
        return tokens


def _repair_request(generation: Generation, text: str, wrong: str) -> Generation:
    messages = (
        *generation.messages,
        Message("assistant", text),
        Message("user", f"This is not accepted: {wrong}\nAgain."),
    )
    return replace(generation, messages=messages, continues=False)
