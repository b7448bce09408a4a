"""Answer /v1/chat/completions, whole or streamed."""

import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from orchestrator.api.access import TheService
from orchestrator.api.bodies import Body
from orchestrator.api.errors import DOCUMENTED, error_detail
from orchestrator.api.events import STREAM, EventStream, message, with_comments
from orchestrator.api.openai.asking import Question, workplace, works_for
from orchestrator.api.openai.generating import Generating
from orchestrator.api.openai.messages import ChatMessage, pairs_of
from orchestrator.api.openai.sampling import (
    FormatBody,
    Fraction,
    Lenient,
    Seed,
    Temperature,
    Tokens,
    answer_schema,
    refuse_options,
)
from orchestrator.api.openai.tools import MAX_TOOLS, Call, Tool, Toolbox, Withheld
from orchestrator.engine.client.engine import Completion
from orchestrator.errors import OrchestratorError
from orchestrator.events import Usage

END: Final = "data: [DONE]\n\n"
MOST_ANSWERS: Final = 8

FinishReason = Literal["stop", "length", "tool_calls"]

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class FunctionBody(Lenient):
    """A function that the model may call."""

    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)


class ToolBody(Lenient):
    """A tool; functions are the only ones."""

    type: Literal["function"] = "function"
    function: FunctionBody


class StreamOptions(Lenient):
    """What a stream tells besides."""

    include_usage: bool | None = None


class ChatBody(Body, Lenient):
    """A request for answers to a chat."""

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=4096)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    temperature: Temperature | None = None
    top_p: Fraction | None = None
    n: Annotated[int, Field(ge=1, le=MOST_ANSWERS)] | None = None
    seed: Seed | None = None
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    response_format: FormatBody | None = None
    tools: Annotated[list[ToolBody], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    logprobs: bool | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class CalledBody(BaseModel):
    """Which function is called with what."""

    name: str
    arguments: str


class CallBody(BaseModel):
    """The model's wish to have a function called."""

    id: str
    type: Literal["function"] = "function"
    function: CalledBody


class AnswerBody(BaseModel):
    """What the model says."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[CallBody] | None = None


class ChoiceBody(BaseModel):
    """One answer."""

    index: int
    message: AnswerBody
    logprobs: None = None
    finish_reason: FinishReason


class UsageDetails(BaseModel):
    """Tokens of the prompt that came from a shared prefix."""

    cached_tokens: int


class UsageBody(BaseModel):
    """Tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: UsageDetails


class ChatAnswer(BaseModel):
    """All answers to a request."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChoiceBody]
    usage: UsageBody


@dataclass(frozen=True, slots=True)
class _Head:
    """What every piece of an answer carries."""

    id: str
    created: int
    model: str
    fingerprint: str

    def chunk(self, choices: Sequence[dict[str, Any]], usage: UsageBody | None = None) -> str:
        """Return one server-sent event."""
        told: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": list(choices),
        }
        return message(told if usage is None else told | {"usage": usage.model_dump()})


@router.post(
    "/chat/completions",
    response_model=ChatAnswer,
    responses={200: {"content": {STREAM: {"schema": {"type": "string"}}}}},
)
async def complete(body: ChatBody, request: Request, service: TheService) -> ChatAnswer | Response:
    """Answer a chat. `model` is a role, a persona, a model of the registry, `auto` or `orchestrate`."""
    question = question_of(body)
    works, model = await works_for(question, service)
    generating = workplace(request).begin(works)
    head = _Head(f"chatcmpl-{secrets.token_hex(12)}", int(time.time()), body.model, model)
    if not body.stream:
        return _answer(head, await generating.completions(request), question.toolbox)
    await generating.wait_begun(request)
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    chunks = _chunks(head, generating, question, with_usage)
    return EventStream(with_comments(chunks), generating.stop)


def question_of(body: ChatBody) -> Question:
    """Return what a request asks. Raises InputError."""
    refuse_options(
        {
            "logprobs": body.logprobs,
            "logit_bias": body.logit_bias,
            "presence_penalty": body.presence_penalty,
            "frequency_penalty": body.frequency_penalty,
        }
    )
    tools = [
        Tool(one.function.name, one.function.description or "", one.function.parameters) for one in body.tools or ()
    ]
    return Question(
        name=body.model,
        pairs=pairs_of(body.messages),
        toolbox=Toolbox.of(tools, body.tool_choice),
        schema=answer_schema(body.response_format, "response_format"),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        count=body.n or 1,
    )


def finish_reason(completion: Completion, call: Call | None) -> FinishReason:
    """Return why an answer ended, in OpenAI's words."""
    if call is not None:
        return "tool_calls"
    return "length" if completion.finish in ("length", "deadline") else "stop"


def _answer(head: _Head, completions: Sequence[Completion], toolbox: Toolbox) -> ChatAnswer:
    return ChatAnswer(
        id=head.id,
        created=head.created,
        model=head.model,
        system_fingerprint=head.fingerprint,
        choices=[_choice(index, completion, toolbox) for index, completion in enumerate(completions)],
        usage=_usage([completion.usage for completion in completions]),
    )


def _choice(index: int, completion: Completion, toolbox: Toolbox) -> ChoiceBody:
    call = toolbox.read(completion.text)
    said = AnswerBody(
        content=completion.text if call is None else None, tool_calls=None if call is None else [_call(call)]
    )
    return ChoiceBody(index=index, message=said, finish_reason=finish_reason(completion, call))


def _call(call: Call) -> CallBody:
    called = CalledBody(name=call.name, arguments=call.arguments)
    return CallBody(id=f"call_{secrets.token_hex(12)}", function=called)


def _usage(usages: Sequence[Usage]) -> UsageBody:
    prompt = max((usage.prompt_tokens for usage in usages), default=0)
    output = sum(usage.output_tokens for usage in usages)
    cached = max((usage.cached_tokens for usage in usages), default=0)
    return UsageBody(
        prompt_tokens=prompt,
        completion_tokens=output,
        total_tokens=prompt + output,
        prompt_tokens_details=UsageDetails(cached_tokens=cached),
    )


async def _chunks(head: _Head, generating: Generating, asked: Question, with_usage: bool) -> AsyncGenerator[str, None]:
    withheld = [Withheld(asked.toolbox) for _ in range(asked.count)]
    usages: list[Usage] = []
    for index in range(asked.count):
        yield head.chunk([_delta(index, {"role": "assistant", "content": ""})])
    try:
        async for index, item in generating.items():
            if isinstance(item, Completion):
                usages.append(item.usage)
                for choice in _last(index, item, withheld[index]):
                    yield head.chunk([choice])
            elif text := withheld[index].take(item):
                yield head.chunk([_delta(index, {"content": text})])
    except OrchestratorError as error:
        yield message({"error": error_detail(error).model_dump()})
        return
    if with_usage:
        yield head.chunk([], _usage(usages))
    yield END


def _last(index: int, completion: Completion, withheld: Withheld) -> Iterator[dict[str, Any]]:
    """Yield what is left to tell of an answer that has ended."""
    text, call = withheld.end(completion.text)
    if text:
        yield _delta(index, {"content": text})
    if call is not None:
        yield _delta(index, {"tool_calls": [{"index": 0, **_call(call).model_dump()}]})
    yield _delta(index, {}, finish_reason(completion, call))


def _delta(index: int, delta: dict[str, Any], finish: FinishReason | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
