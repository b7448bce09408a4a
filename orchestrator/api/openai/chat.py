"""Answer /v1/chat/completions, whole or streamed.

The bodies are our own classes and not those of the `openai` package; `docs/adr/0015-libraries-of-the-http-api.md` says
why.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.api.dependencies import Entries, LenientBody, read_body
from orchestrator.api.errors import DOCUMENTED, error_detail
from orchestrator.api.limiter import CallArguments, CallEnded, CallStarted, GenerationHandle, Piece, RunEvent, Thought
from orchestrator.api.openai.calling import CUT_OFF
from orchestrator.api.openai.completion import NO_TOOLS, AnsweringDep, CompletionRequest
from orchestrator.api.openai.given_files import GivenFile
from orchestrator.api.openai.logprobs import ListedTokens, LogprobsBody, logprobs_body
from orchestrator.api.openai.protocol import (
    ChatMessage,
    FormatBody,
    RequestedEffort,
    TemplateArguments,
    ThinkingValue,
    answer_schema,
    engine_messages,
    left_out_tools,
    may_be_continued,
    requested_thinking,
)
from orchestrator.api.openai.run_answers import AnsweringRun, RunDoubt, RunId, run_event
from orchestrator.api.openai.sampling import (
    MaxTokens,
    SamplingBody,
    TopLogprobs,
    answer_form,
    limit_of,
    refuse_options,
    requested_logprobs,
    shaping_options,
)
from orchestrator.api.openai.tools import MAX_TOOLS, ClientTool, ClientTools
from orchestrator.api.sse import DOCUMENTED_STREAM, Events, format_event
from orchestrator.api.timings import Timings, TimingsSoFar, timings_of
from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Message, TokenLogprob
from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.task.events import Usage

DONE: Final = format_event("[DONE]")  # ends a stream whose answers are all complete
MAX_ANSWERS: Final = 8

FinishReason = Literal["stop", "length", "tool_calls"]

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class FunctionBody(LenientBody):
    """A function that the model may call."""

    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolBody(LenientBody):
    """A tool that the model may call. One that is no function is left out, with a warning, if another one is."""

    type: str = "function"
    function: FunctionBody | None = None

    @model_validator(mode="after")
    def _check_function(self) -> "ToolBody":
        if self.type == "function" and self.function is None:
            raise ValueError("has no function; accepted: one with a name")
        return self


class StreamOptions(LenientBody):
    """What a stream contains in addition to the answers."""

    include_usage: bool | None = None


class ChatBody(SamplingBody):
    """A request for `n` answers to a chat. Of fields that have no name here, `refuse_options` refuses some."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: Annotated[Entries[ChatMessage], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    n: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    response_format: FormatBody | None = None
    tools: Annotated[list[ToolBody], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    continue_final_message: bool | None = None  # whether the answer continues the assistant's last message (vLLM)
    add_generation_prompt: bool | None = None  # whether the answer is a new message (vLLM)
    reasoning_effort: RequestedEffort | None = None
    thinking: ThinkingValue | None = None
    chat_template_kwargs: TemplateArguments | None = None
    # Whether each piece of a stream has the timings so far (llama-server). Without `logprobs`, pieces are counted
    # instead of tokens until the end.
    timings_per_token: bool | None = None
    run_events: bool | None = None  # whether a run's stream has its events, each in a chunk without choices


class CalledBody(BaseModel):
    """The function that is called, and its arguments as JSON."""

    name: str
    arguments: str


class CallBody(BaseModel):
    """A function call by the model."""

    id: str
    type: Literal["function"] = "function"
    function: CalledBody


class AnswerBody(BaseModel):
    """The message of an answer: text, or the call of a function."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    reasoning_content: str | None = None  # None if the model did not think
    refusal: None = None
    tool_calls: list[CallBody] | None = None


class ChoiceBody(BaseModel):
    """One answer."""

    index: int
    message: AnswerBody
    logprobs: LogprobsBody | None = None
    finish_reason: FinishReason


class UsageDetails(BaseModel):
    """How many tokens of the prompt were not computed, because the KV cache had them."""

    cached_tokens: int


class OutputDetails(BaseModel):
    """How many tokens of the answers belong to thoughts."""

    reasoning_tokens: int


class UsageBody(BaseModel):
    """How many tokens prompt and answers have."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: UsageDetails
    completion_tokens_details: OutputDetails


class ChatAnswer(BaseModel):
    """All answers to a request."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChoiceBody]
    usage: UsageBody
    # As llama-server has them; None if a run answers.
    timings: Annotated[Timings | None, Field(exclude_if=lambda timings: timings is None)] = None
    run_id: RunId = None
    run_doubt: RunDoubt = None


@dataclass(frozen=True, slots=True)
class _Common:
    # The fields that all chunks of a stream share with a whole answer.
    id: str
    created: int
    model: str
    fingerprint: str  # id of the model that answers, which need not be the requested name
    run: AnsweringRun  # its id is None if no run answers

    def chunk(self, choices: Sequence[dict[str, Any]], usage: UsageBody | None = None, **more: Any) -> bytes:
        chunk: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": list(choices),
        }
        if self.run.id is not None:
            chunk["run_id"] = self.run.id
        if self.run.doubt is not None:
            chunk["run_doubt"] = self.run.doubt
        if usage is not None:
            chunk["usage"] = usage.model_dump()
        return format_event(chunk | more)


@router.post("/chat/completions", response_model=ChatAnswer, responses={200: DOCUMENTED_STREAM})
async def complete(body: ChatBody, answering: AnsweringDep) -> ChatAnswer | Response:
    """Answer a chat. `model` is a role, a persona, a model of the registry, `auto` or `orchestrate`."""
    started = await answering.start(await read_body(body, lambda: request_of(body)))
    request = started.completion_request
    common = _Common(request.id, int(time.time()), body.model, started.model, request.run)
    if not body.stream:
        return _answer(common, await started.completions(), request)
    await started.wait_begun()
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    chunks = _chunks(common, started.handle, request, with_usage=with_usage, with_timings=bool(body.timings_per_token))
    return started.stream(chunks)


def request_of(body: ChatBody) -> CompletionRequest:
    """Return what the body requests. Raises InputError."""
    refuse_options({}, body.model_extra)
    form = answer_form(body, answer_schema(body.response_format, "response_format"), "response_format")
    files: list[GivenFile] = []
    messages = engine_messages(body.messages, files)
    toolbox = NO_TOOLS
    if body.tools is not None or body.tool_choice is not None:
        toolbox = ClientTools.of(client_tools(body.tools), body.tool_choice, body.parallel_tool_calls)
    return CompletionRequest(
        id=f"chatcmpl-{secrets.token_hex(12)}",
        model=body.model,
        messages=messages,
        toolbox=toolbox,
        schema=form.schema,
        grammar=form.grammar,
        max_tokens=limit_of(body.max_completion_tokens, body.max_tokens),
        **shaping_options(body),
        logprobs=requested_logprobs(body.logprobs, body.top_logprobs),
        continues=_continues(body, messages, is_free=form.schema is None and not toolbox.forced),
        thinking=requested_thinking(body.thinking, body.chat_template_kwargs, body.reasoning_effort),
        template_arguments=body.chat_template_kwargs or {},
        count=body.n or 1,
        files=tuple(files),
        run_events=bool(body.run_events),
        whole=not body.stream,
        warnings=_left_out(body.tools),
    )


def client_tools(tools: Sequence[ToolBody] | None) -> list[ClientTool]:
    """Return the functions that a chat offers. Raises InputError if tools are given and none is a function."""
    _left_out(tools)
    functions = [tool.function for tool in tools or () if tool.type == "function" and tool.function is not None]
    return [ClientTool(function.name, function.description or "", function.parameters or {}) for function in functions]


def _left_out(tools: Sequence[ToolBody] | None) -> tuple[str, ...]:
    return left_out_tools(["" if tool.type == "function" else tool.type for tool in tools or ()], "function")


def _continues(body: ChatBody, messages: Sequence[Message], *, is_free: bool) -> bool:
    wants_to, may = body.continue_final_message, may_be_continued(messages)
    if body.add_generation_prompt is not None:
        if body.add_generation_prompt == wants_to:
            problem = f"is {str(wants_to).lower()}, as continue_final_message is"
            raise InputError(Problem("add_generation_prompt", problem, "the opposite of continue_final_message"))
        wants_to = not body.add_generation_prompt
    # A schema or a forced call applies to a whole answer, so that it needs a new message.
    if wants_to is None:
        return may and is_free
    if wants_to and not may:
        problem = "asks to continue the last message"
        raise InputError(
            Problem("continue_final_message", problem, "a last message of the assistant without tool calls")
        )
    if wants_to and not is_free:
        accepted = "an answer without a schema and without a tool that has to be called"
        raise InputError(Problem("continue_final_message", "cannot be combined with a form of the answer", accepted))
    return wants_to


def finish_reason(completion: Completion) -> FinishReason:
    if completion.finish in CUT_OFF:
        return "length"
    return "tool_calls" if completion.calls else "stop"


def _answer(common: _Common, completions: Sequence[Completion], request: CompletionRequest) -> ChatAnswer:
    return ChatAnswer(
        id=common.id,
        created=common.created,
        model=common.model,
        system_fingerprint=common.fingerprint,
        choices=[_choice(index, completion, request) for index, completion in enumerate(completions)],
        usage=usage_of([completion.usage for completion in completions]),
        timings=None if common.run.id else timings_of([completion.usage for completion in completions]),
        run_id=common.run.id,
        run_doubt=common.run.doubt,
    )


def _choice(index: int, completion: Completion, request: CompletionRequest) -> ChoiceBody:
    calls = [
        CallBody(id=call.id, function=CalledBody(name=call.name, arguments=call.arguments)) for call in completion.calls
    ]
    message = AnswerBody(
        content=completion.text or None if calls else completion.text,
        reasoning_content=completion.reasoning or None,
        tool_calls=calls or None,
    )
    logprobs = None if request.logprobs is None else logprobs_body(completion.logprobs)
    return ChoiceBody(index=index, message=message, logprobs=logprobs, finish_reason=finish_reason(completion))


def usage_of(usages: Sequence[Usage], answers_each: int | None = None) -> UsageBody:
    """Return the tokens of all answers, which are in order. A prompt counts once.

    `answers_each` is the number of answers to each prompt; None if all share one prompt.
    """
    group_size = answers_each or max(1, len(usages))
    of_prompts = [usages[first : first + group_size] for first in range(0, len(usages), group_size)]
    prompt = sum(max(usage.prompt_tokens for usage in group) for group in of_prompts)
    output = sum(usage.output_tokens for usage in usages)
    # The first answer to a prompt computes it for the others.
    cached = sum(min(usage.cached_tokens for usage in group) for group in of_prompts)
    return UsageBody(
        prompt_tokens=prompt,
        completion_tokens=output,
        total_tokens=prompt + output,
        prompt_tokens_details=UsageDetails(cached_tokens=cached),
        completion_tokens_details=OutputDetails(reasoning_tokens=sum(usage.reasoning_tokens for usage in usages)),
    )


async def _chunks(
    common: _Common, handle: GenerationHandle, request: CompletionRequest, *, with_usage: bool, with_timings: bool
) -> Events:
    listed = [ListedTokens() for _ in range(request.count)] if request.logprobs is not None else []
    clocks = [TimingsSoFar() for _ in range(request.count)] if with_timings else []
    usages: list[Usage] = []
    for index in range(request.count):
        yield common.chunk([_delta(index, {"role": "assistant", "content": ""})])
    try:
        async for index, item in handle.items():
            if isinstance(item, Completion):
                usages.append(item.usage)
                rest = listed[index].rest(item) if listed else None
                timings: dict[str, Any] = {} if common.run.id else {"timings": timings_of([item.usage]).model_dump()}
                yield common.chunk([_delta(index, {}, finish_reason(item), rest)], **timings)
            elif isinstance(item, RunEvent):
                yield common.chunk([], run_event=run_event(item))
            elif delta := _piece_delta(item):
                tokens = listed[index].take_with(item) if listed else None
                count = 1 if tokens is None else len(tokens)
                so_far: dict[str, Any] = {"timings": clocks[index].after(count)} if clocks else {}
                yield common.chunk([_delta(index, delta, tokens=tokens)], **so_far)
    except OrchestratorError as error:
        # The HTTP status is sent already, so the error is an event.
        yield format_event({"error": error_detail(error).model_dump()})
        return
    if with_usage:
        yield common.chunk([], usage_of(usages))
    yield DONE


def _piece_delta(piece: Piece | Thought) -> dict[str, Any]:
    match piece:
        case str():
            return {"content": piece} if piece else {}
        case Thought(text):
            return {"reasoning_content": text}
        case CallStarted(index, call_id, name):
            call = CallBody(id=call_id, function=CalledBody(name=name, arguments=""))
            return {"tool_calls": [{"index": index, **call.model_dump()}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        case CallEnded() | RunEvent():
            return {}


def _delta(
    index: int,
    delta: dict[str, Any],
    finish: FinishReason | None = None,
    tokens: Sequence[TokenLogprob] | None = None,
) -> dict[str, Any]:
    logprobs = None if tokens is None else logprobs_body(tokens).model_dump()
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
