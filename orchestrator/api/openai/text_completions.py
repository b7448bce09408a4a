"""Answer /v1/completions: go on with a text, or with tokens, as a whole or as a stream.

The text goes to the model as it is, without a chat template, a system prompt or a persona. With `suffix`, the model
fills the place between both texts, which its vocabulary has to have tokens for.
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

MAX_PROMPTS: Final = 64
"""How many prompts one request may have."""

PromptIds = Annotated[TokenIds, Field(min_length=1)]
MixedPrompt = Annotated[list[TokenId | str], Field(min_length=1, max_length=1 << 16, fail_fast=True)]
"""Tokens, and texts among them."""
Prompts = (
    str
    | PromptIds
    | Annotated[list[str | PromptIds | MixedPrompt], Field(min_length=1, max_length=MAX_PROMPTS)]
    | MixedPrompt
)
"""One text or the tokens of one, or several of them. A list of texts alone is several."""

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class TextCompletionBody(SamplingBody):
    """A request to go on with each of some texts `n` times."""

    model_config = ConfigDict(extra="allow")

    model: str
    prompt: Prompts
    suffix: str | None = None
    max_tokens: MaxTokens | Literal[0] | None = None
    """With `echo` it may be 0: the answers are then the prompts alone."""
    n: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    """Only the same as `n` is accepted."""
    echo: bool | None = None
    """Whether the answers begin with the prompt."""
    response_format: FormatBody | None = None
    """The format of the answers, as vLLM has it here, too."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: TopLogprobs | None = None
    """Of how many of the most likely tokens the logprobs are wanted, beside those that were chosen; with `echo` that is
    told of the prompt, too."""


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
class _Asked:
    """What a stream and an answer as a whole have in common."""

    id: str
    created: int
    model: str
    fingerprint: str
    """The id of the model that answers."""
    echoes: tuple[str, ...]
    """What each answer begins with: its prompt, or nothing."""
    answers_each: int
    """How many answers each prompt gets."""
    with_logprobs: bool
    """Whether it is wanted how likely the tokens of the answers were."""
    prompts: tuple[str | None, ...]
    """The prompt of each answer, where it is a text."""
    empty: bool
    """Whether the answers are only the prompts."""

    @property
    def with_prompts(self) -> bool:
        """Whether it is wanted how likely the tokens of the prompts were."""
        return self.with_logprobs and any(self.echoes)

    def text(self, index: int, completion: Completion) -> str:
        """Return a whole answer."""
        return self.echoes[index] + ("" if self.empty else completion.text)

    def logprobs(self, index: int, completion: Completion) -> TextLogprobs | None:
        """Return how likely the tokens of a whole answer were, where that is wanted."""
        if not self.with_logprobs:
            return None
        if not self.with_prompts:
            return text_logprobs(completion.logprobs)
        return echoed_logprobs(replace(completion, logprobs=()) if self.empty else completion, self.prompts[index])

    def chunk(self, choices: Sequence[dict[str, Any]], usage: UsageBody | None = None) -> bytes:
        """Return the server-sent event of a chunk."""
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
    """Go on with a text. `model` is a role, a persona, a model of the registry or `auto`."""
    generates, echoes, model, warnings = list[Generate](), list[str](), "", list[str]()
    read = await read_body(body, lambda: requests_of(body))
    requests = [replace(one, forced_model=forced, access=access) for one in read]
    for one in requests:
        found = await generates_for(one, service)
        generates, model = generates + found.generates, found.model
        warnings += found.warnings
        echoes.append(await _text_of(one.prompt, model, service) if body.echo else "")
    asked = _Asked(
        id=requests[0].id,
        created=int(time.time()),
        model=body.model,
        fingerprint=model,
        echoes=tuple(echo for echo, one in zip(echoes, requests, strict=True) for _ in range(one.count)),
        answers_each=requests[0].count,
        with_logprobs=body.logprobs is not None,
        prompts=tuple(
            one.prompt if isinstance(one.prompt, str) else None for one in requests for _ in range(one.count)
        ),
        empty=body.max_tokens == 0,
    )
    handle = limiter.start(generates)
    if not body.stream:
        put_warnings(response, warnings)
        return _answer(asked, await handle.completions(request))
    await handle.wait_started(request)
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    stream = EventStream(_chunks(asked, handle, with_usage), handle.cancel)
    put_warnings(stream, warnings)
    return stream


def requests_of(body: TextCompletionBody) -> list[CompletionRequest]:
    """Return what the body asks for, one request for each prompt. Raises InputError."""
    refuse_options({name: (body.model_extra or {}).get(name) for name in ("tools", "messages")}, body.model_extra)
    form = answer_form(body, answer_schema(body.response_format, "response_format"), "response_format")
    if body.max_tokens == 0 and not body.echo:
        raise InputError(Problem("max_tokens", "is 0 without echo", "at least 1, -1, or echo: true beside it"))
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
    given: str | Sequence[int | str] | Sequence[str | list[int] | list[int | str]],
) -> list[str | tuple[int | str, ...]]:
    """Return each prompt: a list that has numbers is the tokens of one, and texts among them. Raises InputError."""
    if isinstance(given, str):
        return [given]
    if any(isinstance(one, int) for one in given):
        return [tuple(one for one in given if isinstance(one, int | str))]
    if len(given) > MAX_PROMPTS:  # of texts alone, which `MixedPrompt` accepts as well
        raise InputError(Problem("prompt", f"has {len(given)} prompts", f"at most {MAX_PROMPTS}"))
    return [one if isinstance(one, str) else tuple(one) for one in given if not isinstance(one, int)]


def _infill(prompt: str | tuple[int | str, ...], suffix: str, index: int) -> Infill:
    if not isinstance(prompt, str):
        raise InputError(Problem(f"prompt/{index}", "is token ids, which cannot have a suffix", "text"))
    return Infill(prompt, suffix)


async def _text_of(prompt: str | tuple[int | str, ...] | None, model: str, service: Service) -> str:
    """Return the text of a prompt, whose tokens are those of a model."""
    if isinstance(prompt, str):
        return prompt
    text = ""
    for is_text, part in groupby(prompt or (), lambda one: isinstance(one, str)):
        if is_text:
            text += "".join(map(str, part))
        else:
            text += await service.orchestrator.pool.detokenize(model, [int(one) for one in part])
    return text


def _answer(asked: _Asked, completions: Sequence[Completion]) -> TextCompletionAnswer:
    return TextCompletionAnswer(
        id=asked.id,
        created=asked.created,
        model=asked.model,
        system_fingerprint=asked.fingerprint,
        choices=[
            TextChoice(
                text=asked.text(index, one),
                index=index,
                logprobs=asked.logprobs(index, one),
                finish_reason=_finish_reason(one),
            )
            for index, one in enumerate(completions)
        ],
        usage=usage_of([one.usage for one in completions], asked.answers_each),
    )


async def _chunks(asked: _Asked, handle: GenerationHandle, with_usage: bool) -> Events:
    """Yield the chunks of all answers. An error ends the stream with an event that has the body of an error.

    Where it is wanted how likely the prompt was, which is known at the end, an answer comes in one piece.
    """
    usages: dict[int, Usage] = {}
    listed = [ListedTokens() for _ in asked.echoes]
    sent = [0] * len(asked.echoes)
    in_pieces = not (asked.with_prompts or asked.empty)
    for index, echo in enumerate(asked.echoes):
        if echo and in_pieces:
            yield asked.chunk([_choice(index, echo)])
    try:
        async for index, item in handle.items():
            if isinstance(item, Completion) and not in_pieces:
                usages[index] = item.usage
                whole = asked.logprobs(index, item)
                yield asked.chunk([_choice(index, asked.text(index, item), _finish_reason(item), whole)])
            elif isinstance(item, Completion):
                usages[index] = item.usage
                rest = listed[index].rest(item)
                logprobs = None if rest is None else text_logprobs(rest, sent[index])
                yield asked.chunk([_choice(index, "", _finish_reason(item), logprobs)])
            elif isinstance(item, str) and item and in_pieces:
                logprobs = text_logprobs(listed[index].take_with(item), sent[index]) if asked.with_logprobs else None
                sent[index] += sum(map(len, logprobs.tokens)) if logprobs is not None else 0
                yield asked.chunk([_choice(index, item, logprobs=logprobs)])
    except OrchestratorError as error:
        yield format_event({"error": error_detail(error).model_dump()})
        return
    if with_usage:
        yield asked.chunk([], usage_of([usages[index] for index in sorted(usages)], asked.answers_each))
    yield DONE


def _choice(
    index: int, text: str, finish: Literal["stop", "length"] | None = None, logprobs: TextLogprobs | None = None
) -> dict[str, Any]:
    shown = None if logprobs is None else logprobs.model_dump()
    return {"index": index, "text": text, "logprobs": shown, "finish_reason": finish}


def _finish_reason(completion: Completion) -> Literal["stop", "length"]:
    return "length" if completion.finish in CUT_OFF else "stop"
