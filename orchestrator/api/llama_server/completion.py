"""Answer /completion and /infill in the form of llama-server, for plugins of editors.

/completion continues a text or tokens, and /infill fills the gap between two texts.
"""

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.dependencies import (
    AccessDep,
    ForcedModel,
    LenientBody,
    LimiterDep,
    ServiceDep,
    read_body,
)
from orchestrator.api.errors import DOCUMENTED, error_detail
from orchestrator.api.limiter import GenerationHandle
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
from orchestrator.api.timings import Timings, TimingsSoFar, timings_of
from orchestrator.api.warnings import put_warnings
from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Generation, Infill, TokenLogprob
from orchestrator.errors import OrchestratorError

_NO_FIELD: Final = object()
RANDOM_SEED: Final = 0xFFFFFFFF  # stands for a random seed, as -1 does

router = APIRouter(tags=["llama-server"], responses=dict(DOCUMENTED))


class NativeOptions(SamplingBody):
    """The fields of both /completion and /infill. `refuse_options` refuses some of the unnamed fields."""

    model_config = ConfigDict(extra="allow")

    model: str = AUTO
    # The most tokens of the answer; -1: as many as fit. With 0 only the prompt is computed.
    n_predict: Annotated[int, Field(ge=-1, le=1 << 22)] | None = None
    max_tokens: Annotated[int, Field(ge=-1, le=1 << 22)] | None = None  # the same, under OpenAI's name
    stream: bool | None = None
    t_max_predict_ms: Annotated[float, Field(ge=0, le=1e9)] | None = None  # limit of an answer; 0: none
    # How many candidates to list for each token; 0: none, and no probabilities at all.
    n_probs: TopLogprobs | None = None
    return_tokens: bool | None = None  # whether the answer has token ids
    timings_per_token: bool | None = None  # whether each piece of a stream has the timings so far
    # The fields of the answer, nested ones as `timings/predicted_n`; None or an empty list for all.
    response_fields: Annotated[list[str], Field(max_length=64)] | None = None

    @property
    def limit(self) -> int | None:
        """The most tokens of the answer, under either name."""
        return self.max_tokens if self.n_predict is None else self.n_predict


class NativeBody(NativeOptions):
    """A request to continue a text, or each of several texts."""

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
    prompt: str = ""  # what the gap starts with


class NativeAnswer(BaseModel):
    """An answer."""

    index: int
    content: str
    tokens: list[int] = []  # token ids, if `return_tokens` is set
    stop: bool = True
    id_slot: int = -1  # sequences have no fixed slots
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    truncated: bool = False  # a prompt that does not fit is refused, never cut
    stop_type: Literal["eos", "limit", "word"]  # an end token, a limit, or a stop string (`stopping_word`)
    stopping_word: str = ""
    has_new_line: bool
    generation_settings: dict[str, Any]  # from the request, else from the role
    timings: Timings
    # Only if `n_probs` is set.
    completion_probabilities: Annotated[
        list[IdentifiedLogprobBody] | None, Field(exclude_if=lambda listed: listed is None)
    ] = None


ShownAnswer: TypeAlias = NativeAnswer | dict[str, Any]  # an answer, or those of its fields that `response_fields` names


@router.post("/completion", response_model=ShownAnswer | list[ShownAnswer], responses={200: DOCUMENTED_STREAM})
async def complete(
    body: NativeBody,
    request: Request,
    service: ServiceDep,
    limiter: LimiterDep,
    access: AccessDep,
    forced: ForcedModel = None,
) -> Response:
    """Continue one text or several, and answer in llama-server's format."""
    prompts = prompts_in(body.prompt)
    read = await read_body(body, lambda: _request(body))
    requests = [replace(read, prompt=prompt, forced_model=forced, access=access) for prompt in prompts]
    return await _carried_out(requests, body, request, service, limiter)


@router.post("/infill", response_model=ShownAnswer, responses={200: DOCUMENTED_STREAM})
async def infill(
    body: InfillBody,
    request: Request,
    service: ServiceDep,
    limiter: LimiterDep,
    access: AccessDep,
    forced: ForcedModel = None,
) -> Response:
    """Write what stands between two texts. The vocabulary of the model has to have tokens for that."""
    files = tuple((file.filename or f"file{index}", file.text) for index, file in enumerate(body.input_extra or ()))
    place = Infill(body.input_prefix, body.input_suffix, files, body.prompt)
    completion_request = replace(
        await read_body(body, lambda: _request(body)), infill=place, forced_model=forced, access=access
    )
    return await _carried_out([completion_request], body, request, service, limiter)


async def _carried_out(
    requests: Sequence[CompletionRequest],
    body: NativeOptions,
    request: Request,
    service: ServiceDep,
    limiter: LimiterDep,
) -> Response:
    jobs = [await generates_for(completion_request, service) for completion_request in requests]
    prompts = [_AskedPrompt(index, job.model, _settings(job.generation, body), body) for index, job in enumerate(jobs)]
    handle = limiter.start([generate for job in jobs for generate in job.generates])
    warnings = [text for job in jobs for text in job.warnings]
    if body.stream:
        await handle.wait_started(request)
        stream = EventStream(_events(prompts, handle, body), handle.cancel)
        put_warnings(stream, warnings)
        return stream
    empty = body.limit == 0
    # With a limit of 0 one token is generated all the same, and left out here.
    answers = [
        prompt.answer(completion, "" if empty else completion.text, () if empty else completion.logprobs)
        for prompt, completion in zip(prompts, await handle.completions(request), strict=True)
    ]
    bodies = [_select_fields(native_answer.model_dump(), body.response_fields) for native_answer in answers]
    response = JSONResponse(bodies[0] if len(bodies) == 1 else bodies)
    put_warnings(response, warnings)
    return response


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
        # Only pieces that have logprobs tell how many tokens they are.
        logprobs=body.n_probs or (0 if body.return_tokens or (body.stream and body.timings_per_token) else None),
        deadline_seconds=seconds or None,
    )


@dataclass(frozen=True, slots=True)
class _AskedPrompt:
    index: int
    model: str  # id of the model that answers
    settings: dict[str, Any]  # `generation_settings` of the answer
    body: NativeOptions

    def answer(self, completion: Completion, text: str, listed: Sequence[TokenLogprob]) -> NativeAnswer:
        # In a stream, `text` and `listed` are only what was not sent yet.
        usage = completion.usage
        if completion.finish in CUT_OFF:
            ended: Literal["eos", "limit", "word"] = "limit"
        else:
            ended = "word" if completion.stop_string else "eos"
        return NativeAnswer(
            index=self.index,
            content=text,
            tokens=[token.id for token in listed] if self.body.return_tokens else [],
            completion_probabilities=identified_logprobs(listed) if self.body.n_probs else None,
            model=self.model,
            tokens_predicted=usage.output_tokens,
            tokens_evaluated=usage.prompt_tokens,
            tokens_cached=usage.cached_tokens,
            stop_type=ended,
            stopping_word=completion.stop_string,
            has_new_line="\n" in completion.text,
            generation_settings=self.settings,
            timings=timings_of([usage]),
        )


def _settings(generation: Generation | None, body: NativeOptions) -> dict[str, Any]:
    # Under the names of llama-server.
    if generation is None:
        return {}
    sampling = {
        name: -1 if value is None else list(value) if isinstance(value, tuple) else value
        for name, value in asdict(generation.sampling).items()
    }
    limit = -1 if generation.max_tokens is None else generation.max_tokens
    return {
        "n_predict": limit,
        "max_tokens": limit,
        "seed": RANDOM_SEED if generation.seed is None else generation.seed,
        "temperature": generation.temperature,
        "top_p": generation.top_p,
        **sampling,
        "stop": list(generation.stop),
        "min_tokens": generation.min_tokens,
        "ignore_eos": generation.ignore_end,
        "grammar": generation.grammar or "",
        "n_probs": body.n_probs or 0,
        "stream": bool(body.stream),
        "timings_per_token": bool(body.timings_per_token),
    }


def _select_fields(answer: dict[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    # Unknown fields are left out. The others keep the name under which they were requested.
    if not names:
        return answer
    selected: dict[str, Any] = {}
    for name in names:
        value: Any = answer
        for part in name.split("/"):
            value = value.get(part, _NO_FIELD) if isinstance(value, dict) else _NO_FIELD
        if value is not _NO_FIELD:
            selected[name] = value
    return selected


async def _events(prompts: Sequence[_AskedPrompt], handle: GenerationHandle, body: NativeOptions) -> Events:
    listed = [ListedTokens() for _ in prompts]
    clocks = [TimingsSoFar() for _ in prompts]
    empty = body.limit == 0
    try:
        async for index, item in handle.items():
            if isinstance(item, Completion):
                rest = () if empty else listed[index].rest(item) or ()
                answer = prompts[index].answer(item, "", rest)
                yield format_event(_select_fields(answer.model_dump(), body.response_fields))
            elif isinstance(item, str) and item and not empty:
                tokens = listed[index].take_with(item)
                ids = [token.id for token in tokens] if body.return_tokens else []
                piece: dict[str, Any] = {"index": index, "content": item, "tokens": ids, "stop": False, "id_slot": -1}
                if body.n_probs:
                    piece["completion_probabilities"] = [entry.model_dump() for entry in identified_logprobs(tokens)]
                if body.timings_per_token:
                    piece["timings"] = clocks[index].after(len(tokens))
                yield format_event(piece)
    except OrchestratorError as error:
        yield format_event({"error": error_detail(error).model_dump()})
