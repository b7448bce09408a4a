"""Make the response bodies and the stream events of /v1/messages."""

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal

from pydantic import BaseModel

from orchestrator.api.errors import messages_error, status_of
from orchestrator.api.limiter import CallArguments, CallEnded, CallStarted, GenerationHandle, Piece, RunEvent, Thought
from orchestrator.api.openai.calling import CUT_OFF
from orchestrator.api.openai.completion import CompletionRequest
from orchestrator.api.sse import Events, format_event
from orchestrator.engine.client.engine import Completion
from orchestrator.errors import OrchestratorError
from orchestrator.task.events import Usage

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class TextBlock(BaseModel):
    """A text of the answer."""

    type: Literal["text"] = "text"
    text: str


class ThinkingBlock(BaseModel):
    """The model's reasoning before its answer."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str = ""  # empty: thoughts are not signed, and those that a client sends back are ignored


class ToolUseBlock(BaseModel):
    """A call of a function."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


class MessageUsage(BaseModel):
    """How many tokens prompt and answer have."""

    input_tokens: int  # prompt tokens that were computed
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0  # prompt tokens that the KV cache had
    output_tokens: int


class MessageAnswer(BaseModel):
    """An answer, or what there is of it so far."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[ThinkingBlock | TextBlock | ToolUseBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None = None  # the stop string that ended the answer
    usage: MessageUsage


def message_answer(request: CompletionRequest, completion: Completion) -> MessageAnswer:
    content: list[ThinkingBlock | TextBlock | ToolUseBlock] = []
    if completion.reasoning:
        content.append(ThinkingBlock(thinking=completion.reasoning))
    if completion.text:
        content.append(TextBlock(text=completion.text))
    for call in completion.calls:
        content.append(ToolUseBlock(id=call.id, name=call.name, input=json.loads(call.arguments)))
    return MessageAnswer(
        id=request.id,
        model=request.model,
        content=content,
        stop_reason=_stop_reason(completion),
        stop_sequence=completion.stop_string or None,
        usage=_usage(completion.usage),
    )


async def message_events(
    request: CompletionRequest,
    prompt_tokens: int,
    handle: GenerationHandle,
    keep: Callable[[MessageAnswer], Awaitable[None]],
) -> Events:
    """Yield the events of an answer. An error becomes an event of that name, which ends the stream.

    `prompt_tokens` is sent at the start; how many of them the KV cache had is sent at the end. `keep` gets the whole
    answer before the last event.
    """
    stream = _BlockStream()
    usage = MessageUsage(input_tokens=prompt_tokens, output_tokens=0)
    begun = MessageAnswer(id=request.id, model=request.model, content=[], stop_reason=None, usage=usage)
    yield _event("message_start", message=begun.model_dump())
    yield _event("ping")
    try:
        async for _, item in handle.items():
            if isinstance(item, Completion):
                await keep(message_answer(request, item))
                events = [*stream.end(), *_message_end(item)]
            else:
                events = list(stream.piece(item))
            for event in events:
                yield event
    except OrchestratorError as error:
        yield _event("error", error=messages_error(status_of(error), str(error)).error.model_dump())


class _BlockStream:
    # Blocks are sequential: each starts, grows and ends before the next one starts.
    def __init__(self) -> None:
        self._index = -1
        self._open = ""  # type of the block that has not ended; empty for none

    def piece(self, piece: Piece | Thought) -> Iterator[bytes]:
        match piece:
            case str():
                if piece:
                    yield from self._begin(TextBlock(text=""))
                    yield self._delta(type="text_delta", text=piece)
            case Thought(text):
                yield from self._begin(ThinkingBlock(thinking=""))
                yield self._delta(type="thinking_delta", thinking=text)
            case CallStarted(_, call_id, name):
                yield from self.end()
                yield from self._begin(ToolUseBlock(id=call_id, name=name, input={}))
            case CallArguments(_, text):
                yield self._delta(type="input_json_delta", partial_json=text)
            case CallEnded():
                yield from self.end()
            case RunEvent():
                pass

    def end(self) -> Iterator[bytes]:
        if self._open == "thinking":
            yield self._delta(type="signature_delta", signature="")
        if self._open:
            yield _event("content_block_stop", index=self._index)
        self._open = ""

    def _begin(self, block: BaseModel) -> Iterator[bytes]:
        fields = block.model_dump()
        if self._open != fields["type"]:
            yield from self.end()
            self._index += 1
            self._open = fields["type"]
            yield _event("content_block_start", index=self._index, content_block=fields)

    def _delta(self, **fields: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta=fields)


def _message_end(completion: Completion) -> Iterator[bytes]:
    delta = {
        "stop_reason": _stop_reason(completion),
        "stop_sequence": completion.stop_string or None,
    }
    yield _event("message_delta", delta=delta, usage=_usage(completion.usage).model_dump())
    yield _event("message_stop")


def _stop_reason(completion: Completion) -> StopReason:
    if completion.finish in CUT_OFF:
        return "max_tokens"
    if completion.calls:
        return "tool_use"
    return "stop_sequence" if completion.stop_string else "end_turn"


def _usage(usage: Usage) -> MessageUsage:
    return MessageUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
    )


def _event(kind: str, **fields: Any) -> bytes:
    return format_event({"type": kind, **fields}, kind)
