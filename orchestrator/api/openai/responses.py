"""Answer /v1/responses, whole or streamed.

An answer is stored unless `store` is false, and a later request can continue it by its id. A request can also carry the
whole conversation.

Tools that only OpenAI's servers have are left out with a warning, and so are their items. A function in a namespace is
offered to the model as `NAMESPACE__NAME`; its calls have both names again.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.api.dependencies import Entries, LenientBody, StoredResponsesDep, at_most, read_body
from orchestrator.api.errors import DOCUMENTED, error_detail
from orchestrator.api.limiter import CallArguments, CallEnded, CallStarted, Piece, RunEvent, Thought
from orchestrator.api.openai.calling import CUT_OFF
from orchestrator.api.openai.chat import OutputDetails
from orchestrator.api.openai.completion import AnsweringDep, CompletionRequest, StartedAnswers
from orchestrator.api.openai.given_files import GivenFile
from orchestrator.api.openai.logprobs import LogprobBody, logprobs_body, tokens_of_text
from orchestrator.api.openai.protocol import (
    EarlierArguments,
    FormatBody,
    RequestedEffort,
    TemplateArguments,
    TextPart,
    ThinkingValue,
    answer_schema,
    left_out_tools,
    requested_thinking,
    text_of,
)
from orchestrator.api.openai.run_answers import RunDoubt, RunId, run_event
from orchestrator.api.openai.sampling import (
    MaxTokens,
    SamplingBody,
    TopLogprobs,
    answer_form,
    limit_of,
    refuse_options,
    shaping_options,
)
from orchestrator.api.openai.tools import MAX_TOOLS, ClientTool, ClientTools
from orchestrator.api.sse import DOCUMENTED_STREAM, Events, format_event
from orchestrator.engine.client.engine import Completion, TextPiece
from orchestrator.engine.contract import Message, TokenLogprob, ToolCall
from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.service.stored_responses import StoredResponse
from orchestrator.task.events import Usage

Status = Literal["in_progress", "completed", "incomplete", "failed"]
MAX_METADATA: Final = 64  # entries are stored, and returned with each answer
LOGPROBS: Final = "message.output_text.logprobs"  # in `include`: requests the logprobs of the text

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


# Items of OpenAI's servers that are neither calls nor outputs of calls.
_LEFT_OUT: Final = frozenset("compaction mcp_list_tools mcp_approval_request mcp_approval_response".split())


def _is_left_out(kind: object) -> bool:
    # Whether an item of this type belongs to a tool that is not a function.
    if not isinstance(kind, str) or kind in ("function_call", "function_call_output"):
        return False
    return kind in _LEFT_OUT or kind.endswith(("_call", "_output"))


class InputItem(LenientBody):
    """One item of the conversation so far: a message, a function call, or the output of one, as `type` says.

    Of an item of another tool only the type is kept.
    """

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | Entries[TextPart] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: EarlierArguments = "{}"
    output: str | Entries[TextPart] | None = None

    @model_validator(mode="before")
    @classmethod
    def _reduce(cls, item: Any) -> Any:
        is_other = isinstance(item, dict) and _is_left_out(item.get("type"))
        return {"type": item["type"]} if is_other else item


ToolName = Annotated[str, Field(min_length=1, max_length=128)]


class ResponseTool(LenientBody):
    """A function that the model may call, a namespace of functions, or a tool that is left out."""

    type: str = "function"
    name: ToolName | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    tools: "Annotated[list[ResponseTool], Field(max_length=MAX_TOOLS)] | None" = None  # of a namespace

    @model_validator(mode="after")
    def _check_name(self) -> "ResponseTool":
        if self.type in ("function", "namespace") and self.name is None:
            raise ValueError("has no name; accepted: 1 to 128 characters")
        return self

    @property
    def functions(self) -> "dict[str, tuple[str | None, ResponseTool]]":
        """The functions in this tool with their namespaces, by the names that the model gets."""
        if self.type == "function":
            return {self.name or "": (None, self)}
        inner = self.tools or () if self.type == "namespace" else ()
        return {
            flat_name(self.name, function.name or ""): (self.name, function)
            for function in inner
            if function.type == "function"
        }


def flat_name(namespace: str | None, name: str) -> str:
    """Return the name under which a model gets a function."""
    return f"{namespace.removesuffix('__')}__{name}" if namespace else name


class TextOptions(LenientBody):
    """The options for the text of an answer."""

    format: FormatBody | None = None
    verbosity: str | None = None


class ReasoningBody(LenientBody):
    """How much the model may think."""

    effort: RequestedEffort | None = None


class ResponseBody(SamplingBody):
    """A request for an answer. Of fields that have no name here, `refuse_options` refuses some."""

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | Annotated[Entries[InputItem], Field(min_length=1)]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: MaxTokens | None = None
    max_tokens: MaxTokens | None = None  # the same, under the name of chats, like the next one
    max_completion_tokens: MaxTokens | None = None
    top_logprobs: TopLogprobs | None = None
    include: Entries[str] | None = None
    text: TextOptions | None = None
    tools: Annotated[list[ResponseTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningBody | None = None
    thinking: ThinkingValue | None = None
    chat_template_kwargs: TemplateArguments | None = None
    metadata: Annotated[dict[str, str], at_most(MAX_METADATA)] | None = None
    previous_response_id: str | None = None
    store: bool | None = None  # None: it is stored
    background: bool | None = None
    conversation: Any = None  # refused: `previous_response_id` does the same
    run_events: bool | None = None  # whether a run's stream has its events, as `response.run_event`

    @property
    def functions(self) -> dict[str, tuple[str | None, ResponseTool]]:
        return {name: function for tool in self.tools or () for name, function in tool.functions.items()}


class TextBody(BaseModel):
    """A piece of the text of a message."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = Field(default_factory=list)
    logprobs: list[LogprobBody] = Field(default_factory=list)  # if the request asks for them


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
    status: Literal["in_progress", "completed", "incomplete"]
    call_id: str
    name: str
    arguments: str
    namespace: Annotated[str | None, Field(exclude_if=lambda name: name is None)] = None


class ReasoningText(BaseModel):
    """A piece of the model's reasoning."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class ReasoningItem(BaseModel):
    """The model's reasoning before the next item."""

    id: str
    type: Literal["reasoning"] = "reasoning"
    status: Literal["in_progress", "completed", "incomplete"]
    summary: list[Any] = Field(default_factory=list)
    content: list[ReasoningText]


OutputItem = ReasoningItem | MessageItem | CallItem


class InputDetails(BaseModel):
    """How many tokens of the prompt were not computed, because the KV cache had them."""

    cached_tokens: int = 0


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
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    store: bool = True
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    run_id: RunId = None
    run_doubt: RunDoubt = None


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
    body: ResponseBody, answering: AnsweringDep, responses: StoredResponsesDep
) -> ResponseAnswer | Response:
    """Answer. `model` is a role, a persona, a model of the registry, `auto` or `orchestrate`."""
    earlier: list[InputItem] = []
    if (previous := body.previous_response_id) is not None:
        items = await asyncio.to_thread(responses.conversation, previous, answering.access.sees)
        earlier = [InputItem.model_validate(item) for item in items]
    started = await answering.start(await read_body(body, lambda: request_of(body, earlier)))
    created = _created(body, started.completion_request.id)

    async def store(answer: ResponseAnswer) -> None:
        if answer.store:
            stored = StoredResponse(previous, _stored_items(body.input), answer.model_dump(), answering.access.key)
            await asyncio.to_thread(responses.store, answer.id, stored)

    functions = body.functions
    if not body.stream:
        (completion,) = await started.completions()
        run = started.completion_request.run
        created = created.model_copy(update={"run_id": run.id, "run_doubt": run.doubt})
        answer = _ended(created, _items(completion, functions), completion)
        await store(answer)
        return answer
    await started.wait_begun()
    created = created.model_copy(update={"run_id": started.completion_request.run.id})
    return started.stream(_stream_events(created, started, store, functions))


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
    """Remove a stored answer. No request can continue it, or an answer that continued it."""
    await asyncio.to_thread(responses.delete, response)
    return DeletedBody(id=response)


def _stored_items(items: str | Sequence[InputItem]) -> list[dict[str, Any]]:
    if isinstance(items, str):
        items = [InputItem(role="user", content=[TextPart(type="input_text", text=items)])]
    return [{"id": f"item_{secrets.token_hex(12)}", **item.model_dump(exclude_none=True)} for item in items]


def request_of(body: ResponseBody, earlier: Sequence[InputItem] = ()) -> CompletionRequest:
    """Return what the body requests, as the next turn after the items `earlier`. Raises InputError."""
    extra = body.model_extra or {}
    elsewhere = {name: extra.get(name) for name in ("prompt", "response_format", "logprobs")}
    if body.conversation is not None:
        accepted = "previous_response_id, or the whole conversation in input"
        raise InputError(Problem("conversation", "is not supported", accepted))
    verbosity = None if body.text is None or body.text.verbosity == "medium" else body.text.verbosity
    refuse_options({"background": body.background, "text/verbosity": verbosity, **elsewhere}, extra)
    if extra.get("n") not in (None, 1):
        raise InputError(Problem("n", f"is {extra['n']!r:.80}, and a response is one answer", "1"))
    schema = answer_schema(body.text.format if body.text is not None else None, "text/format")
    form = answer_form(body, schema, "text/format")
    items = [InputItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    tools, left_out = _client_tools(body), _left_out(body, items)
    files: list[GivenFile] = []
    return CompletionRequest(
        id=f"resp_{secrets.token_hex(12)}",
        model=body.model,
        messages=input_messages([*earlier, *items], body.instructions, files),
        toolbox=ClientTools.of(tools, _tool_choice(body.tool_choice), body.parallel_tool_calls),
        schema=form.schema,
        grammar=form.grammar,
        max_tokens=limit_of(body.max_output_tokens, body.max_completion_tokens, body.max_tokens),
        **shaping_options(body),
        logprobs=_requested_logprobs(body),
        thinking=requested_thinking(
            body.thinking, body.chat_template_kwargs, body.reasoning.effort if body.reasoning is not None else None
        ),
        template_arguments=body.chat_template_kwargs or {},
        files=tuple(files),
        run_events=bool(body.run_events),
        whole=not body.stream,
        warnings=left_out,
    )


def _client_tools(body: ResponseBody) -> list[ClientTool]:
    functions = body.functions
    if len(functions) > MAX_TOOLS:
        raise InputError(Problem("tools", f"holds {len(functions)} functions", f"at most {MAX_TOOLS}"))
    return [
        ClientTool(name, function.description or "", function.parameters or {})
        for name, (_, function) in functions.items()
    ]


def _left_out(body: ResponseBody, items: Sequence[InputItem]) -> tuple[str, ...]:
    kinds = ["" if tool.functions else tool.type for tool in body.tools or ()]
    of_items = (
        f"input/{index}: an item of the type {item.type!r:.80} is left out"
        for index, item in enumerate(items)
        if _is_left_out(item.type)
    )
    return (*left_out_tools(kinds, "function, or a namespace that holds functions"), *of_items)


def _tool_choice(choice: str | Mapping[str, Any] | None) -> str | Mapping[str, Any] | None:
    # The names become those that the model gets; tools that are left out are dropped.
    if not isinstance(choice, Mapping):
        return choice
    if isinstance(namespace := choice.get("namespace"), str) and isinstance(name := choice.get("name"), str):
        return {**choice, "name": flat_name(namespace, name)}
    if choice.get("type") == "allowed_tools" and isinstance(listed := choice.get("tools"), list):
        functions = (tool for tool in listed if isinstance(tool, Mapping) and tool.get("type") == "function")
        return {**choice, "tools": [_tool_choice(tool) for tool in functions]}
    return choice


def _requested_logprobs(body: ResponseBody) -> int | None:
    # The number of candidates for each token of the text; None for no logprobs.
    if body.top_logprobs:
        return body.top_logprobs
    return 0 if LOGPROBS in (body.include or ()) else None


def input_messages(
    items: Sequence[InputItem], instructions: str | None, files: list[GivenFile] | None = None
) -> list[Message]:
    """Return the input as messages for an engine, after the instructions. Thoughts and left-out items are skipped.

    Consecutive calls form one message. Files are added to `files`. Raises InputError for items of an unknown type, and
    for other content without text.
    """
    messages = [Message("system", instructions)] if instructions else []
    for index, item in enumerate(items):
        if item.type == "reasoning" or _is_left_out(item.type):
            continue
        message = _input_message(item, f"input/{index}", files)
        if message.tool_calls and messages and messages[-1].role == "assistant":
            messages[-1] = messages[-1]._replace(tool_calls=messages[-1].tool_calls + message.tool_calls)
        else:
            messages.append(message)
    return messages


def _input_message(item: InputItem, where: str, files: list[GivenFile] | None) -> Message:
    match item.type:
        case "message" if item.role is not None:
            role = "system" if item.role == "developer" else item.role
            return Message(role, text_of(item.content, f"{where}/content", files))
        case "function_call":
            name = flat_name(item.namespace, item.name or "")
            return Message("assistant", "", (ToolCall(item.call_id or "", name, item.arguments),))
        case "function_call_output":
            result = text_of(item.output, f"{where}/output", of_tool=True)
            return Message("tool", result, tool_call_id=item.call_id or "")
        case _:
            accepted = "message with a role, function_call, function_call_output, reasoning"
            raise InputError(Problem(f"{where}/type", f"{item.type!r} is not supported", accepted))


def _created(body: ResponseBody, response_id: str) -> ResponseAnswer:
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
        parallel_tool_calls=body.parallel_tool_calls is not False,
        tool_choice=body.tool_choice or "auto",
        tools=[_shown_tool(tool) for tool in body.tools or () if tool.functions],
    )


def _shown_tool(tool: ResponseTool) -> dict[str, Any]:
    if tool.type == "function":
        return {**tool.model_dump(exclude={"tools"}), "strict": False}
    inner = [_shown_tool(function) for _, function in tool.functions.values()]
    return {**tool.model_dump(exclude={"tools", "parameters"}), "tools": inner}


def _ended(created: ResponseAnswer, items: Sequence[OutputItem], completion: Completion) -> ResponseAnswer:
    incomplete = completion.finish in CUT_OFF
    return created.model_copy(
        update={
            "status": "incomplete" if incomplete else "completed",
            "incomplete_details": Incomplete(reason="max_output_tokens") if incomplete else None,
            "output": list(items),
            "usage": _usage(completion.usage),
        }
    )


# Functions with their namespaces, by the names that the model gets.
Functions = Mapping[str, tuple[str | None, ResponseTool]]


def _items(completion: Completion, functions: Functions) -> list[OutputItem]:
    items: list[OutputItem] = [_reasoning_item(completion.reasoning)] if completion.reasoning else []
    if completion.text or not completion.calls:
        tokens = tokens_of_text(completion)
        items.append(_message_item(completion.text, tokens, complete=completion.finish not in CUT_OFF))
    return items + [_call_item(call.id, call.name, call.arguments, functions) for call in completion.calls]


def _reasoning_item(text: str) -> ReasoningItem:
    content = [ReasoningText(text=text)]
    return ReasoningItem(id=f"rs_{secrets.token_hex(12)}", status="completed", content=content)


def _message_item(text: str, tokens: Sequence[TokenLogprob] = (), *, complete: bool = True) -> MessageItem:
    return MessageItem(
        id=f"msg_{secrets.token_hex(12)}",
        status="completed" if complete else "incomplete",
        content=[TextBody(text=text, logprobs=logprobs_body(tokens).content)],
    )


def _call_item(call_id: str, name: str, arguments: str, functions: Functions) -> CallItem:
    namespace, function = functions.get(name, (None, None))
    return CallItem(
        id=f"fc_{secrets.token_hex(12)}",
        status="completed",
        call_id=call_id,
        name=name if function is None or function.name is None else function.name,
        arguments=arguments,
        namespace=namespace,
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
    # The events of one streamed answer, numbered from 0. The items of the answer (thoughts, messages and calls) are
    # sequential: each starts, grows and ends before the next one starts.
    def __init__(self, created: ResponseAnswer, functions: Functions) -> None:
        self._created = self.answer = created
        self._functions = functions
        self._numbers = itertools.count()
        self._items: list[OutputItem] = []
        self._open: OutputItem | None = None  # the last one of `_items`, until it ends

    def start(self) -> Iterator[bytes]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._created.model_dump())

    def piece(self, piece: Piece | Thought) -> Iterator[bytes]:
        match piece:
            case str():
                tokens = piece.logprobs if isinstance(piece, TextPiece) else ()
                yield from self._text(piece, tokens) if piece else ()
            case Thought(text):
                yield from self._thought(text)
            case CallStarted(_, call_id, name):
                yield from self._begin(_call_item(call_id, name, "", self._functions))
            case CallArguments(_, text):
                assert isinstance(self._open, CallItem), "arguments come within a call"
                self._open.arguments += text
                yield self._event("response.function_call_arguments.delta", **self._place, delta=text)
            case CallEnded():
                yield from self._end()
            case RunEvent():
                yield self._event("response.run_event", **run_event(piece))

    def end(self, completion: Completion) -> Iterator[bytes]:
        # Yields all but the last event. `answer` is complete afterwards.
        # An answer has a message or a call, even if its text is empty.
        if all(isinstance(item, ReasoningItem) for item in self._items):
            yield from self._text(completion.text, completion.logprobs)
        if isinstance(self._open, MessageItem) and not completion.calls:
            self._open.content[0].logprobs = logprobs_body(completion.logprobs).content
        yield from self._end("incomplete" if completion.finish in CUT_OFF else "completed")
        self.answer = _ended(self._created, self._items, completion)

    def last(self) -> bytes:
        return self._event(f"response.{self.answer.status}", response=self.answer.model_dump())

    def failed(self, error: OrchestratorError) -> bytes:
        detail = error_detail(error)
        failure = {"code": detail.code, "message": detail.message, "param": detail.param}
        answer = self._created.model_copy(update={"status": "failed", "error": failure})
        return self._event("response.failed", response=answer.model_dump())

    def _text(self, piece: str, tokens: Sequence[TokenLogprob]) -> Iterator[bytes]:
        if not isinstance(self._open, MessageItem):
            yield from self._begin(_message_item(""))
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield self._event("response.content_part.added", **self._part, part=part)
        assert isinstance(self._open, MessageItem), "a message has begun"
        text, listed = self._open.content[0], logprobs_body(tokens).content
        text.text += piece
        text.logprobs += listed
        shown = [entry.model_dump() for entry in listed]
        yield self._event("response.output_text.delta", **self._part, delta=piece, logprobs=shown)

    def _thought(self, piece: str) -> Iterator[bytes]:
        if not isinstance(self._open, ReasoningItem):
            yield from self._begin(_reasoning_item(""))
        assert isinstance(self._open, ReasoningItem), "a thought has begun"
        self._open.content[0].text += piece
        yield self._event("response.reasoning_text.delta", **self._part, delta=piece)

    def _begin(self, item: OutputItem) -> Iterator[bytes]:
        yield from self._end()
        self._items.append(item)
        self._open = item
        item.status = "in_progress"
        shown = item.model_dump() if isinstance(item, CallItem) else item.model_dump() | {"content": []}
        yield self._event("response.output_item.added", output_index=len(self._items) - 1, item=shown)

    def _end(self, status: Literal["completed", "incomplete"] = "completed") -> Iterator[bytes]:
        item = self._open
        if item is None:
            return
        item.status = status
        match item:
            case MessageItem():
                part = item.content[0].model_dump()
                fields = {"text": part["text"], "logprobs": part["logprobs"]}
                yield self._event("response.output_text.done", **self._part, **fields)
                yield self._event("response.content_part.done", **self._part, part=part)
            case ReasoningItem():
                yield self._event("response.reasoning_text.done", **self._part, text=item.content[0].text)
            case CallItem():
                fields = {"arguments": item.arguments, "name": item.name}
                yield self._event("response.function_call_arguments.done", **self._place, **fields)
        self._open = None
        yield self._event("response.output_item.done", output_index=len(self._items) - 1, item=item.model_dump())

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._items[-1].id, "output_index": len(self._items) - 1}

    @property
    def _part(self) -> dict[str, Any]:
        return {**self._place, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        return format_event({"type": kind, "sequence_number": next(self._numbers), **fields}, kind)


async def _stream_events(
    created: ResponseAnswer,
    started: StartedAnswers,
    store: Callable[[ResponseAnswer], Awaitable[None]],
    functions: Functions,
) -> Events:
    builder = _EventBuilder(created, functions)
    for event in builder.start():
        yield event
    try:
        async for _, item in started.handle.items():
            for event in builder.end(item) if isinstance(item, Completion) else builder.piece(item):
                yield event
        # The doubt is only known when the run has ended.
        builder.answer = builder.answer.model_copy(update={"run_doubt": started.completion_request.run.doubt})
        await store(builder.answer)
        yield builder.last()
    except OrchestratorError as error:
        yield builder.failed(error)
