"""Answer /completion and /infill in the form of llama-server, which plugins of editors ask for.

/completion goes on with a text or tokens, and /infill writes what stands between two texts.
"""

import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.dependencies import ForcedModel, LenientBody, LimiterDep, RequestBody, ServiceDep, read_body
from orchestrator.api.errors import DOCUMENTED, error_detail
from orchestrator.api.limiter import Generate, GenerationHandle
from orchestrator.api.openai.calling import CUT_OFF
from orchestrator.api.openai.completion import CompletionRequest, generates_for
from orchestrator.api.openai.logprobs import IdentifiedLogprobBody, ListedTokens, identified_logprobs
from orchestrator.api.openai.names import AUTO
from orchestrator.api.openai.sampling import (
    SamplingBody,
    TopLogprobs,
    answer_form,
    refuse_options,
    shaping_options,
)
from orchestrator.api.openai.text_completions import Prompts, prompts_in
from orchestrator.api.sse import DOCUMENTED_STREAM, Events, EventStream, format_event
from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Infill, TokenLogprob
from orchestrator.errors import OrchestratorError
from orchestrator.events import Usage

_NO_FIELD: Final = object()
RANDOM_SEED: Final = 0xFFFFFFFF
"""The seed that stands for a random one, beside -1."""

router = APIRouter(tags=["llama-server"], responses=dict(DOCUMENTED))


class NativeOptions(RequestBody, SamplingBody):
    """What /completion and /infill have in common. Of fields that have no name here, `refuse_options` refuses some."""

    model_config = ConfigDict(extra="allow")

    model: str = AUTO
    n_predict: Annotated[int, Field(ge=-1, le=1 << 22)] | None = None
    """The most tokens of the answer; -1: as many as there is room for. With 0 only the prompt is computed."""
    max_tokens: Annotated[int, Field(ge=-1, le=1 << 22)] | None = None
    """The same, as OpenAI's API calls it."""
    stream: bool | None = None
    t_max_predict_ms: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """How many milliseconds an answer may take; 0: as many as it needs."""
    n_probs: TopLogprobs | None = None
    """How many likely tokens are told in the place of each token; 0: none, and no probabilities at all."""
    return_tokens: bool | None = None
    """Whether the answer has the ids of its tokens."""
    response_fields: Annotated[list[str], Field(max_length=64)] | None = None
    """Which fields of the answer are wanted, those inside of others as `timings/predicted_n`; None or none for all."""

    @property
    def limit(self) -> int | None:
        """The most tokens of the answer, under whichever name it is given."""
        return self.max_tokens if self.n_predict is None else self.n_predict


class NativeBody(NativeOptions):
    """A request to go on with a text, or with each of several texts."""

    prompt: Prompts


class ExtraFile(LenientBody):
    """Another file of the project."""

    filename: str = ""
    text: str


class InfillBody(NativeOptions):
    """A request for what stands between two texts."""

    input_prefix: str
    input_suffix: str
    input_extra: Annotated[list[ExtraFile], Field(max_length=256)] | None = None
    prompt: str = ""
    """What the place begins with already."""


class Timings(BaseModel):
    """How long prompt and answer took."""

    cache_n: int
    """Tokens of the prompt that the KV cache had."""
    prompt_n: int
    """Tokens of the prompt that were computed."""
    prompt_ms: float
    prompt_per_second: float
    predicted_n: int
    """Tokens of the answer."""
    predicted_ms: float
    predicted_per_second: float


class NativeAnswer(BaseModel):
    """An answer."""

    index: int
    content: str
    tokens: list[int] = []
    """The ids of its tokens, where `return_tokens` asks for them."""
    stop: bool = True
    id_slot: int = -1
    """-1: sequences have no fixed slots here."""
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    truncated: bool = False
    """Always false: what does not fit the context is refused, and not cut."""
    stop_type: Literal["eos", "limit", "word"]
    """Why it ended: by an end token, at a limit, or by a stop string, which is the `stopping_word`."""
    stopping_word: str = ""
    timings: Timings
    completion_probabilities: Annotated[
        list[IdentifiedLogprobBody] | None, Field(exclude_if=lambda listed: listed is None)
    ] = None
    """How likely its tokens were, where `n_probs` asks for that."""


ShownAnswer: TypeAlias = NativeAnswer | dict[str, Any]
"""An answer, or the fields of it that `response_fields` names."""


@router.post("/completion", response_model=ShownAnswer | list[ShownAnswer], responses={200: DOCUMENTED_STREAM})
async def complete(
    body: NativeBody, request: Request, service: ServiceDep, limiter: LimiterDep, forced: ForcedModel = None
) -> Response:
    """Go on with a text or with several, and answer in the form of llama-server."""
    prompts = prompts_in(body.prompt)
    read = await read_body(body, lambda: _request(body))
    asked = [replace(read, prompt=prompt, forced_model=forced) for prompt in prompts]
    return await _carried_out(asked, body, request, service, limiter)


@router.post("/infill", response_model=ShownAnswer, responses={200: DOCUMENTED_STREAM})
async def infill(
    body: InfillBody, request: Request, service: ServiceDep, limiter: LimiterDep, forced: ForcedModel = None
) -> Response:
    """Write what stands between two texts. The vocabulary of the model has to have tokens for that."""
    files = tuple((one.filename or f"file{index}", one.text) for index, one in enumerate(body.input_extra or ()))
    place = Infill(body.input_prefix, body.input_suffix, files, body.prompt)
    asked = replace(await read_body(body, lambda: _request(body)), infill=place, forced_model=forced)
    return await _carried_out([asked], body, request, service, limiter)


async def _carried_out(
    requests: Sequence[CompletionRequest],
    body: NativeOptions,
    request: Request,
    service: ServiceDep,
    limiter: LimiterDep,
) -> Response:
    generates: list[Generate] = []
    model = ""
    for one in requests:
        found, model = await generates_for(one, service)
        generates += found
    handle = limiter.start(generates)
    empty = body.limit == 0
    if body.stream:
        await handle.wait_started(request)
        return EventStream(_events(model, handle, body, empty=empty), handle.cancel)
    answers = [
        _answer(index, model, one, body, "" if empty else one.text, () if empty else one.logprobs)
        for index, one in enumerate(await handle.completions(request))
    ]
    found_answers = [_chosen(one.model_dump(), body.response_fields) for one in answers]
    return JSONResponse(found_answers[0] if len(found_answers) == 1 else found_answers)


def _request(body: NativeOptions) -> CompletionRequest:
    refuse_options({}, body.model_extra)
    form = answer_form(body, None, "")
    options = shaping_options(body)
    if body.seed == RANDOM_SEED:
        options["seed"] = None
    seconds = (body.t_max_predict_ms or 0) / 1000
    return CompletionRequest(
        id=f"cmpl-{secrets.token_hex(12)}",
        model=body.model,
        schema=form.schema,
        grammar=form.grammar,
        max_tokens=None if body.limit in (None, -1) else max(1, body.limit or 0),
        **options,
        logprobs=body.n_probs or (0 if body.return_tokens else None),
        deadline_seconds=seconds or None,
    )


def _answer(
    index: int, model: str, completion: Completion, body: NativeOptions, text: str, listed: Sequence[TokenLogprob]
) -> NativeAnswer:
    """Return the answer with this text, of these tokens, which a stream has sent already as far as it could."""
    usage = completion.usage
    if completion.finish in CUT_OFF:
        ended: Literal["eos", "limit", "word"] = "limit"
    else:
        ended = "word" if completion.stop_string else "eos"
    return NativeAnswer(
        index=index,
        content=text,
        tokens=[token.id for token in listed] if body.return_tokens else [],
        completion_probabilities=identified_logprobs(listed) if body.n_probs else None,
        model=model,
        tokens_predicted=usage.output_tokens,
        tokens_evaluated=usage.prompt_tokens,
        tokens_cached=usage.cached_tokens,
        stop_type=ended,
        stopping_word=completion.stop_string,
        timings=_timings(usage),
    )


def _timings(usage: Usage) -> Timings:
    computed = usage.prompt_tokens - usage.cached_tokens
    return Timings(
        cache_n=usage.cached_tokens,
        prompt_n=computed,
        prompt_ms=1000 * usage.prefill_seconds,
        prompt_per_second=computed / usage.prefill_seconds if usage.prefill_seconds else 0.0,
        predicted_n=usage.output_tokens,
        predicted_ms=1000 * usage.decode_seconds,
        predicted_per_second=usage.output_tokens / usage.decode_seconds if usage.decode_seconds else 0.0,
    )


def _chosen(answer: dict[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """Return the fields of an answer that are wanted, each under the name by which it is. Unknown ones are left out."""
    if not names:
        return answer
    found: dict[str, Any] = {}
    for name in names:
        value: Any = answer
        for part in name.split("/"):
            value = value.get(part, _NO_FIELD) if isinstance(value, dict) else _NO_FIELD
        if value is not _NO_FIELD:
            found[name] = value
    return found


async def _events(model: str, handle: GenerationHandle, body: NativeOptions, *, empty: bool) -> Events:
    """Yield an event for each piece of text, and for each answer one that says how it ended."""
    listed: defaultdict[int, ListedTokens] = defaultdict(ListedTokens)
    try:
        async for index, item in handle.items():
            if isinstance(item, Completion):
                rest = () if empty else listed[index].rest(item) or ()
                answer = _answer(index, model, item, body, "", rest)
                yield format_event(_chosen(answer.model_dump(), body.response_fields))
            elif isinstance(item, str) and item and not empty:
                tokens = listed[index].take_with(item)
                ids = [token.id for token in tokens] if body.return_tokens else []
                piece: dict[str, Any] = {"index": index, "content": item, "tokens": ids, "stop": False, "id_slot": -1}
                if body.n_probs:
                    piece["completion_probabilities"] = [one.model_dump() for one in identified_logprobs(tokens)]
                yield format_event(piece)
    except OrchestratorError as error:
        yield format_event({"error": error_detail(error).model_dump()})
