"""Answer /v1/responses, as a whole or as a stream.

An answer is stored, unless `store` is false, and a later request may go on with it by its id. A request may also carry
the whole conversation itself.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from orchestrator.api.dependencies import (
    ForcedModel,
    LenientBody,
    LimiterDep,
    RequestBody,
    ServiceDep,
    StoredResponsesDep,
)
from orchestrator.api.errors import DOCUMENTED, error_detail
from orchestrator.api.limiter import GenerationHandle, Thought
from orchestrator.api.openai.completion import CUT_OFF, CompletionRequest, generates_for
from orchestrator.api.openai.protocol import (
    FormatBody,
    MaxTokens,
    RequestedEffort,
    Temperature,
    TemplateArguments,
    TextPart,
    ThinkingValue,
    TopP,
    answer_schema,
    refuse_options,
    requested_thinking,
    text_of,
)
from orchestrator.api.openai.tools import MAX_TOOLS, ClientTool, ClientTools, ParsedToolCall, ToolCallBuffer
from orchestrator.api.sse import DOCUMENTED_STREAM, Events, EventStream, format_event
from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Message, ToolCall
from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.events import Usage
from orchestrator.service.stored_responses import StoredResponse

Status = Literal["in_progress", "completed", "incomplete", "failed"]

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class InputItem(LenientBody):
    """One item of the conversation so far: a message, a function call, or the output of one, as `type` says."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[TextPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[TextPart] | None = None


class FunctionTool(LenientBody):
    """A function that the model may call."""

    type: Literal["function"] = "function"
    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class TextOptions(LenientBody):
    """The options for the text of an answer."""

    format: FormatBody | None = None


class ReasoningBody(LenientBody):
    """How much the model shall think."""

    effort: RequestedEffort | None = None


class ResponseBody(RequestBody, LenientBody):
    """A request for an answer."""

    model: str
    input: str | Annotated[list[InputItem], Field(min_length=1, max_length=4096)]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: MaxTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    text: TextOptions | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    reasoning: ReasoningBody | None = None
    thinking: ThinkingValue | None = None
    chat_template_kwargs: TemplateArguments | None = None
    metadata: dict[str, str] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    """Whether the answer is stored; so it is if nothing is said."""
    background: bool | None = None


class TextBody(BaseModel):
    """A piece of the text of a message."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = Field(default_factory=list)


class MessageItem(BaseModel):
    """A message by the model."""

    id: str
    type: Literal["message"] = "message"
    status: Literal["in_progress", "completed", "incomplete"]
    role: Literal["assistant"] = "assistant"
    content: list[TextBody]


class CallItem(BaseModel):
    """A function call by the model."""

    id: str
    type: Literal["function_call"] = "function_call"
    status: Literal["in_progress", "completed"]
    call_id: str
    name: str
    arguments: str


class ReasoningText(BaseModel):
    """A piece of what the model has thought."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class ReasoningItem(BaseModel):
    """What the model has thought before the item that follows."""

    id: str
    type: Literal["reasoning"] = "reasoning"
    status: Literal["in_progress", "completed", "incomplete"]
    summary: list[Any] = Field(default_factory=list)
    content: list[ReasoningText]


AnswerItem = MessageItem | CallItem
OutputItem = ReasoningItem | AnswerItem


class InputDetails(BaseModel):
    """How many tokens of the prompt were not computed, because the KV cache had them."""

    cached_tokens: int = 0


class OutputDetails(BaseModel):
    """How many tokens belong to thoughts."""

    reasoning_tokens: int = 0


class ResponseUsage(BaseModel):
    """How many tokens prompt and answer have."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Incomplete(BaseModel):
    """Why an answer ended before it was complete."""

    reason: Literal["max_output_tokens"]


class ResponseAnswer(BaseModel):
    """An answer, or what there is of it so far."""

    id: str
    object: Literal["response"] = "response"
    created_at: float
    status: Status
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None = None
    error: dict[str, Any] | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None
    metadata: dict[str, str]
    temperature: float | None
    top_p: float | None
    max_output_tokens: int | None
    parallel_tool_calls: bool = False
    previous_response_id: str | None = None
    store: bool = True
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]


class DeletedBody(BaseModel):
    """A response was removed."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class ItemList(BaseModel):
    """The items that a request has added to its conversation."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool = False


@router.post("/responses", response_model=ResponseAnswer, responses={200: DOCUMENTED_STREAM})
async def respond(
    body: ResponseBody,
    request: Request,
    service: ServiceDep,
    limiter: LimiterDep,
    responses: StoredResponsesDep,
    forced: ForcedModel = None,
) -> ResponseAnswer | Response:
    """Answer. `model` is a role, a persona, a model of the registry, `auto` or `orchestrate`."""
    earlier: list[InputItem] = []
    if (previous := body.previous_response_id) is not None:
        items = await asyncio.to_thread(responses.conversation, previous)
        earlier = [InputItem.model_validate(item) for item in items]
    completion_request = replace(request_of(body, earlier), forced_model=forced)
    generates, _ = await generates_for(completion_request, service)
    handle = limiter.start(generates)
    created, toolbox = _created(body, completion_request.id), completion_request.toolbox

    async def store(answer: ResponseAnswer) -> None:
        if answer.store:
            stored = StoredResponse(previous, _given_items(body.input), answer.model_dump())
            await asyncio.to_thread(responses.store, answer.id, stored)

    if not body.stream:
        (completion,) = await handle.completions(request)
        answer = _ended(created, _item(completion, toolbox.parse(completion.text)), completion)
        await store(answer)
        return answer
    await handle.wait_started(request)
    return EventStream(_stream_events(created, handle, toolbox, store), handle.cancel)


@router.get("/responses/{response}")
async def show(response: str, responses: StoredResponsesDep) -> ResponseAnswer:
    """Return an answer that is stored."""
    return ResponseAnswer.model_validate((await asyncio.to_thread(responses.load, response)).answer)


@router.get("/responses/{response}/input_items")
async def input_items(response: str, responses: StoredResponsesDep) -> ItemList:
    """List what the request for an answer has added to the conversation. The newest item comes first."""
    items = [dict(item) for item in reversed((await asyncio.to_thread(responses.load, response)).given)]
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return ItemList(data=items, first_id=first, last_id=last)


@router.delete("/responses/{response}")
async def delete(response: str, responses: StoredResponsesDep) -> DeletedBody:
    """Remove an answer that is stored. No request can go on with it, or with one that has gone on with it."""
    await asyncio.to_thread(responses.delete, response)
    return DeletedBody(id=response)


def _given_items(given: str | Sequence[InputItem]) -> list[dict[str, Any]]:
    """Return the items of an input as they are stored."""
    if isinstance(given, str):
        given = [InputItem(role="user", content=[TextPart(type="input_text", text=given)])]
    return [{"id": f"item_{secrets.token_hex(12)}", **item.model_dump(exclude_none=True)} for item in given]


def request_of(body: ResponseBody, earlier: Sequence[InputItem] = ()) -> CompletionRequest:
    """Return what the body asks for, as the next turn of a conversation with the items `earlier`. Raises InputError."""
    refuse_options({"background": body.background})
    given = [InputItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    tools = [ClientTool(one.name, one.description or "", one.parameters or {}) for one in body.tools or ()]
    return CompletionRequest(
        id=f"resp_{secrets.token_hex(12)}",
        model=body.model,
        messages=input_messages([*earlier, *given], body.instructions),
        toolbox=ClientTools.of(tools, body.tool_choice),
        schema=answer_schema(body.text.format if body.text is not None else None, "text/format"),
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        thinking=requested_thinking(
            body.thinking, body.chat_template_kwargs, body.reasoning.effort if body.reasoning is not None else None
        ),
        template_arguments=body.chat_template_kwargs or {},
    )


def input_messages(given: Sequence[InputItem], instructions: str | None) -> list[Message]:
    """Return the input as messages for an engine, after the instructions, without earlier thoughts.

    Calls in a row are one message's. Raises InputError for items of an unknown type, and for content that is no text.
    """
    messages = [Message("system", instructions)] if instructions else []
    for index, item in enumerate(given):
        if item.type == "reasoning":
            continue
        message = _input_message(item, f"input/{index}")
        if message.tool_calls and messages and messages[-1].role == "assistant":
            messages[-1] = messages[-1]._replace(tool_calls=messages[-1].tool_calls + message.tool_calls)
        else:
            messages.append(message)
    return messages


def _input_message(item: InputItem, where: str) -> Message:
    match item.type:
        case "message" if item.role is not None:
            role = "system" if item.role == "developer" else item.role
            return Message(role, text_of(item.content, f"{where}/content"))
        case "function_call":
            return Message("assistant", "", (ToolCall(item.call_id or "", item.name or "", item.arguments or "{}"),))
        case "function_call_output":
            return Message("tool", text_of(item.output, f"{where}/output"), tool_call_id=item.call_id or "")
        case _:
            accepted = "message with a role, function_call, function_call_output, reasoning"
            raise InputError(Problem(f"{where}/type", f"{item.type!r} is not supported", accepted))


def _created(body: ResponseBody, response_id: str) -> ResponseAnswer:
    """Return the answer as it is before anything has been generated."""
    return ResponseAnswer(
        id=response_id,
        created_at=time.time(),
        status="in_progress",
        model=body.model,
        output=[],
        instructions=body.instructions,
        metadata=body.metadata or {},
        temperature=body.temperature,
        top_p=body.top_p,
        max_output_tokens=body.max_output_tokens,
        previous_response_id=body.previous_response_id,
        store=body.store is not False,
        tool_choice=body.tool_choice or "auto",
        tools=[{**tool.model_dump(), "strict": False} for tool in body.tools or ()],
    )


def _ended(
    created: ResponseAnswer, item: AnswerItem, completion: Completion, thought: ReasoningItem | None = None
) -> ResponseAnswer:
    """Return the answer as it is at its end. `thought` is the item of the thoughts, if it was made before."""
    if thought is None and completion.reasoning:
        thought = _reasoning_item(completion.reasoning)
    incomplete = item.status == "incomplete"
    return created.model_copy(
        update={
            "status": "incomplete" if incomplete else "completed",
            "incomplete_details": Incomplete(reason="max_output_tokens") if incomplete else None,
            "output": [item] if thought is None else [thought, item],
            "usage": _usage(completion.usage),
        }
    )


def _reasoning_item(text: str) -> ReasoningItem:
    content = [ReasoningText(text=text)]
    return ReasoningItem(id=f"rs_{secrets.token_hex(12)}", status="completed", content=content)


def _item(completion: Completion, call: ParsedToolCall | None) -> AnswerItem:
    if call is not None:
        return _call_item(call)
    return _message_item(completion.text, complete=completion.finish not in CUT_OFF)


def _message_item(text: str, *, complete: bool = True) -> MessageItem:
    return MessageItem(
        id=f"msg_{secrets.token_hex(12)}",
        status="completed" if complete else "incomplete",
        content=[TextBody(text=text)],
    )


def _call_item(call: ParsedToolCall) -> CallItem:
    token = secrets.token_hex(12)
    return CallItem(
        id=f"fc_{token}", status="completed", call_id=f"call_{token}", name=call.name, arguments=call.arguments
    )


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputDetails(cached_tokens=usage.cached_tokens),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.prompt_tokens + usage.output_tokens,
    )


class _EventBuilder:
    """Builds the events of one streamed answer, numbered from 0.

    The answer has one item, which is a message or a call, and another one before it if the model thinks.
    """

    def __init__(self, created: ResponseAnswer) -> None:
        self._created = self.answer = created
        self._numbers = itertools.count()
        self._message = _message_item("")
        self._text = ""
        self._reasoning: ReasoningItem | None = None
        self._reasoning_ended = False

    def start(self) -> Iterator[bytes]:
        """Yield the events that come before any output."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._created.model_dump())

    def thought(self, piece: str) -> Iterator[bytes]:
        """Yield the event of a piece of the thoughts. Before the first piece, their item is added."""
        if self._reasoning is None:
            self._reasoning = _reasoning_item("")
            empty = self._reasoning.model_copy(update={"status": "in_progress", "content": []})
            yield self._event("response.output_item.added", output_index=0, item=empty.model_dump())
        self._reasoning.content[0].text += piece
        yield self._event("response.reasoning_text.delta", **self._thought_part(), delta=piece)

    def text(self, piece: str) -> Iterator[bytes]:
        """Yield the event of a piece of text, after those that add the message where it is the first piece."""
        if not self._text:
            yield from self._thought_done()
            yield from self._message_added()
        self._text += piece
        yield self._event("response.output_text.delta", **self._part(), delta=piece, logprobs=[])

    def end(self, completion: Completion, held_text: str, call: ParsedToolCall | None) -> Iterator[bytes]:
        """Yield the events at the end of the answer, but for the last one: the text that was held back, or the call.

        `answer` is then the whole answer.
        """
        if call is not None:
            item: AnswerItem = _call_item(call)
            assert isinstance(item, CallItem)
            yield from self._thought_done()
            yield from self._call_events(item)
        else:
            if held_text or not self._text:
                yield from self.text(held_text)
            item = _item(completion, None).model_copy(update={"id": self._message.id})
            assert isinstance(item, MessageItem)
            yield from self._message_done(item)
        self.answer = _ended(self._created, item, completion, self._reasoning)

    def last(self) -> bytes:
        """Return the last event, which has the whole answer."""
        return self._event(f"response.{self.answer.status}", response=self.answer.model_dump())

    def failed(self, error: OrchestratorError) -> bytes:
        """Return the event of an answer that has failed, which ends the stream."""
        detail = error_detail(error)
        failure = {"code": detail.code, "message": detail.message, "param": detail.param}
        answer = self._created.model_copy(update={"status": "failed", "error": failure})
        return self._event("response.failed", response=answer.model_dump())

    def _message_added(self) -> Iterator[bytes]:
        empty = self._message.model_copy(update={"status": "in_progress", "content": []})
        yield self._event("response.output_item.added", output_index=self._place, item=empty.model_dump())
        part = {"type": "output_text", "text": "", "annotations": []}
        yield self._event("response.content_part.added", **self._part(), part=part)

    def _message_done(self, item: MessageItem) -> Iterator[bytes]:
        text = item.content[0].text
        yield self._event("response.output_text.done", **self._part(), text=text, logprobs=[])
        yield self._event("response.content_part.done", **self._part(), part=item.content[0].model_dump())
        yield self._event("response.output_item.done", output_index=self._place, item=item.model_dump())

    def _thought_done(self) -> Iterator[bytes]:
        """Yield the events at the end of the thoughts, if there are any and they have not been sent."""
        if self._reasoning is None or self._reasoning_ended:
            return
        self._reasoning_ended = True
        text = self._reasoning.content[0].text
        yield self._event("response.reasoning_text.done", **self._thought_part(), text=text)
        yield self._event("response.output_item.done", output_index=0, item=self._reasoning.model_dump())

    def _call_events(self, item: CallItem) -> Iterator[bytes]:
        place = {"item_id": item.id, "output_index": self._place}
        empty = item.model_copy(update={"arguments": "", "status": "in_progress"})
        yield self._event("response.output_item.added", output_index=self._place, item=empty.model_dump())
        yield self._event("response.function_call_arguments.delta", **place, delta=item.arguments)
        done = {"arguments": item.arguments, "name": item.name}
        yield self._event("response.function_call_arguments.done", **place, **done)
        yield self._event("response.output_item.done", output_index=self._place, item=item.model_dump())

    @property
    def _place(self) -> int:
        """The index of the message or the call among the items."""
        return 0 if self._reasoning is None else 1

    def _part(self) -> dict[str, Any]:
        return {"item_id": self._message.id, "output_index": self._place, "content_index": 0}

    def _thought_part(self) -> dict[str, Any]:
        assert self._reasoning is not None, "there are thoughts"
        return {"item_id": self._reasoning.id, "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        return format_event({"type": kind, "sequence_number": next(self._numbers), **fields}, kind)


async def _stream_events(
    created: ResponseAnswer,
    handle: GenerationHandle,
    toolbox: ClientTools,
    store: Callable[[ResponseAnswer], Awaitable[None]],
) -> Events:
    builder, buffer = _EventBuilder(created), ToolCallBuffer(toolbox)
    for event in builder.start():
        yield event
    try:
        async for _, item in handle.items():
            if isinstance(item, Completion):
                events = builder.end(item, *buffer.finish(item.text))
            elif isinstance(item, Thought):
                events = builder.thought(item.text)
            else:
                text = buffer.push(item)
                events = builder.text(text) if text else iter(())
            for event in events:
                yield event
        await store(builder.answer)
        yield builder.last()
    except OrchestratorError as error:
        yield builder.failed(error)
