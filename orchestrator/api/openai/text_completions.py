"""Answer /v1/completions: continue a text or tokens, whole or streamed.

The prompt goes to the model as it is, without a chat template, a system prompt or a persona. With `suffix`, the model
fills the gap between both texts, if its vocabulary has tokens for that.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.dependencies import AccessDep, ForcedModel, LimiterDep, ServiceDep, read_body
from orchestrator.api.errors import DOCUMENTED, error_detail
from orchestrator.api.limiter import Generate, GenerationHandle
from orchestrator.api.openai.calling import CUT_OFF
from orchestrator.api.openai.chat import DONE, MAX_ANSWERS, StreamOptions, UsageBody, usage_of
from orchestrator.api.openai.completion import CompletionRequest, generates_for
from orchestrator.api.openai.logprobs import ListedTokens, TextLogprobs, echoed_logprobs, text_logprobs
from orchestrator.api.openai.protocol import FormatBody, TokenIds, answer_schema
from orchestrator.api.openai.sampling import (
    MaxTokens,
    SamplingBody,
    TokenId,
    TopLogprobs,
    answer_form,
    limit_of,
    refuse_options,
    shaping_options,
)
from orchestrator.api.sse import DOCUMENTED_STREAM, Events, EventStream, format_event
from orchestrator.api.warnings import put_warnings
from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Infill
from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.service.service import Service
from orchestrator.task.events import Usage

MAX_PROMPTS: Final = 64  # of one request

PromptIds = Annotated[TokenIds, Field(min_length=1)]
# Tokens with texts among them.
MixedPrompt = Annotated[list[TokenId | str], Field(min_length=1, max_length=1 << 16, fail_fast=True)]
# One or several prompts, each of them text or tokens. A list of texts alone is several.
Prompts = (
    str
    | PromptIds
    | Annotated[list[str | PromptIds | MixedPrompt], Field(min_length=1, max_length=MAX_PROMPTS)]
    | MixedPrompt
)

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class TextCompletionBody(SamplingBody):
    """A request to continue one or more texts, each `n` times."""

    model_config = ConfigDict(extra="allow")

    model: str
    prompt: Prompts
    suffix: str | None = None
    max_tokens: MaxTokens | Literal[0] | None = None  # 0 with `echo`: the prompts alone
    n: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None  # has to equal `n`
    echo: bool | None = None  # whether the answers start with the prompt
    response_format: FormatBody | None = None  # as in vLLM
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # The number of candidates for each token; with `echo`, for those of the prompt, too.
    logprobs: TopLogprobs | None = None


class TextChoice(BaseModel):
    """One answer."""

    text: str
    index: int
    logprobs: TextLogprobs | None = None
    finish_reason: Literal["stop", "length"]


class TextCompletionAnswer(BaseModel):
    """All answers to a request: those to the first prompt, then those to the second, and so on."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: UsageBody


@dataclass(frozen=True, slots=True)
class _Common:
    # The fields that a stream shares with a whole answer.
    id: str
    created: int
    model: str
    fingerprint: str  # id of the model that answers
    echoes: tuple[str, ...]  # what each answer starts with: its prompt or nothing
    answers_each: int  # answers to each prompt
    with_logprobs: bool
    prompts: tuple[str | None, ...]  # of each answer; None if it is tokens
    empty: bool  # whether the answers are the prompts alone

    @property
    def with_prompts(self) -> bool:  # whether the logprobs of the prompts are wanted
        return self.with_logprobs and any(self.echoes)

    def text(self, index: int, completion: Completion) -> str:
        return self.echoes[index] + ("" if self.empty else completion.text)

    def logprobs(self, index: int, completion: Completion) -> TextLogprobs | None:
        if not self.with_logprobs:
            return None
        if not self.with_prompts:
            return text_logprobs(completion.logprobs)
        return echoed_logprobs(replace(completion, logprobs=()) if self.empty else completion, self.prompts[index])

    def chunk(self, choices: Sequence[dict[str, Any]], usage: UsageBody | None = None) -> bytes:
        chunk: dict[str, Any] = {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": list(choices),
        }
        return format_event(chunk if usage is None else chunk | {"usage": usage.model_dump()})


@router.post("/completions", response_model=TextCompletionAnswer, responses={200: DOCUMENTED_STREAM})
async def complete(
    body: TextCompletionBody,
    request: Request,
    response: Response,
    service: ServiceDep,
    limiter: LimiterDep,
    access: AccessDep,
    forced: ForcedModel = None,
) -> TextCompletionAnswer | Response:
    """Continue a text. `model` is a role, a persona, a model of the registry or `auto`."""
    generates, echoes, model, warnings = list[Generate](), list[str](), "", list[str]()
    read = await read_body(body, lambda: requests_of(body))
    requests = [replace(completion_request, forced_model=forced, access=access) for completion_request in read]
    for completion_request in requests:
        prepared = await generates_for(completion_request, service)
        generates, model = generates + prepared.generates, prepared.model
        warnings += prepared.warnings
        echoes.append(await _text_of(completion_request.prompt, model, service) if body.echo else "")
    common = _Common(
        id=requests[0].id,
        created=int(time.time()),
        model=body.model,
        fingerprint=model,
        echoes=tuple(
            echo
            for echo, completion_request in zip(echoes, requests, strict=True)
            for _ in range(completion_request.count)
        ),
        answers_each=requests[0].count,
        with_logprobs=body.logprobs is not None,
        prompts=tuple(
            completion_request.prompt if isinstance(completion_request.prompt, str) else None
            for completion_request in requests
            for _ in range(completion_request.count)
        ),
        empty=body.max_tokens == 0,
    )
    handle = limiter.start(generates)
    if not body.stream:
        put_warnings(response, warnings)
        return _answer(common, await handle.completions(request))
    await handle.wait_started(request)
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    stream = EventStream(_chunks(common, handle, with_usage), handle.cancel)
    put_warnings(stream, warnings)
    return stream


def requests_of(body: TextCompletionBody) -> list[CompletionRequest]:
    """Return a request for each prompt of the body. Raises InputError."""
    refuse_options({name: (body.model_extra or {}).get(name) for name in ("tools", "messages")}, body.model_extra)
    form = answer_form(body, answer_schema(body.response_format, "response_format"), "response_format")
    if body.max_tokens == 0 and not body.echo:
        raise InputError(Problem("max_tokens", "is 0 without echo", "at least 1, -1, or echo: true with it"))
    if body.best_of not in (None, body.n or 1):
        raise InputError(Problem("best_of", f"is {body.best_of}, and n is {body.n or 1}", "the same number as n"))
    if body.echo and body.suffix is not None:
        raise InputError(Problem("echo", "cannot be combined with suffix", "one of both"))
    token = secrets.token_hex(12)
    return [
        CompletionRequest(
            id=f"cmpl-{token}" if index == 0 else f"cmpl-{token}-{index}",
            model=body.model,
            prompt=prompt if body.suffix is None else None,
            infill=None if body.suffix is None else _infill(prompt, body.suffix, index),
            max_tokens=limit_of(body.max_tokens) if body.max_tokens != 0 else 1,
            schema=form.schema,
            grammar=form.grammar,
            logprobs=body.logprobs,
            prompt_logprobs=body.logprobs if body.echo else None,
            **shaping_options(body),
            count=body.n or 1,
        )
        for index, prompt in enumerate(prompts_in(body.prompt))
    ]


def prompts_in(
    prompt: str | Sequence[int | str] | Sequence[str | list[int] | list[int | str]],
) -> list[str | tuple[int | str, ...]]:
    """Return the prompts. A list with numbers is one prompt of tokens, and of texts among them. Raises InputError."""
    if isinstance(prompt, str):
        return [prompt]
    if any(isinstance(item, int) for item in prompt):
        return [tuple(item for item in prompt if isinstance(item, int | str))]
    if len(prompt) > MAX_PROMPTS:  # of texts alone, which `MixedPrompt` accepts as well
        raise InputError(Problem("prompt", f"has {len(prompt)} prompts", f"at most {MAX_PROMPTS}"))
    return [item if isinstance(item, str) else tuple(item) for item in prompt if not isinstance(item, int)]


def _infill(prompt: str | tuple[int | str, ...], suffix: str, index: int) -> Infill:
    if not isinstance(prompt, str):
        raise InputError(Problem(f"prompt/{index}", "is token ids, which cannot have a suffix", "text"))
    return Infill(prompt, suffix)


async def _text_of(prompt: str | tuple[int | str, ...] | None, model: str, service: Service) -> str:
    if isinstance(prompt, str):
        return prompt
    text = ""
    for is_text, part in groupby(prompt or (), lambda item: isinstance(item, str)):
        if is_text:
            text += "".join(map(str, part))
        else:
            text += await service.orchestrator.pool.detokenize(model, [int(token) for token in part])
    return text


def _answer(common: _Common, completions: Sequence[Completion]) -> TextCompletionAnswer:
    return TextCompletionAnswer(
        id=common.id,
        created=common.created,
        model=common.model,
        system_fingerprint=common.fingerprint,
        choices=[
            TextChoice(
                text=common.text(index, completion),
                index=index,
                logprobs=common.logprobs(index, completion),
                finish_reason=_finish_reason(completion),
            )
            for index, completion in enumerate(completions)
        ],
        usage=usage_of([completion.usage for completion in completions], common.answers_each),
    )


async def _chunks(common: _Common, handle: GenerationHandle, with_usage: bool) -> Events:
    usages: dict[int, Usage] = {}
    listed = [ListedTokens() for _ in common.echoes]
    sent = [0] * len(common.echoes)
    # The logprobs of the prompt are known at the end: such an answer comes in one piece.
    in_pieces = not (common.with_prompts or common.empty)
    for index, echo in enumerate(common.echoes):
        if echo and in_pieces:
            yield common.chunk([_choice(index, echo)])
    try:
        async for index, item in handle.items():
            if isinstance(item, Completion) and not in_pieces:
                usages[index] = item.usage
                whole = common.logprobs(index, item)
                yield common.chunk([_choice(index, common.text(index, item), _finish_reason(item), whole)])
            elif isinstance(item, Completion):
                usages[index] = item.usage
                rest = listed[index].rest(item)
                logprobs = None if rest is None else text_logprobs(rest, sent[index])
                yield common.chunk([_choice(index, "", _finish_reason(item), logprobs)])
            elif isinstance(item, str) and item and in_pieces:
                logprobs = text_logprobs(listed[index].take_with(item), sent[index]) if common.with_logprobs else None
                sent[index] += sum(map(len, logprobs.tokens)) if logprobs is not None else 0
                yield common.chunk([_choice(index, item, logprobs=logprobs)])
    except OrchestratorError as error:
        # The HTTP status is sent already, so the error is an event.
        yield format_event({"error": error_detail(error).model_dump()})
        return
    if with_usage:
        yield common.chunk([], usage_of([usages[index] for index in sorted(usages)], common.answers_each))
    yield DONE


def _choice(
    index: int, text: str, finish: Literal["stop", "length"] | None = None, logprobs: TextLogprobs | None = None
) -> dict[str, Any]:
    shown = None if logprobs is None else logprobs.model_dump()
    return {"index": index, "text": text, "logprobs": shown, "finish_reason": finish}


def _finish_reason(completion: Completion) -> Literal["stop", "length"]:
    return "length" if completion.finish in CUT_OFF else "stop"
