"""Answer /completion and /infill in the form of llama-server, which plugins of editors ask for.

/completion goes on with a text or tokens, and /infill writes what stands between two texts.
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
RANDOM_SEED: Final = 0xFFFFFFFF
"""The seed that stands for a random one, beside -1."""

router = APIRouter(tags=["llama-server"], responses=dict(DOCUMENTED))


class NativeOptions(SamplingBody):
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
    timings_per_token: bool | None = None
    """Whether each piece of a stream tells how long the answer has taken so far."""
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
    has_new_line: bool
    """Whether it has a line break."""
    generation_settings: dict[str, Any]
    """How the model was asked: by what the request says, and else by the role."""
    timings: Timings
    completion_probabilities: Annotated[
        list[IdentifiedLogprobBody] | None, Field(exclude_if=lambda listed: listed is None)
    ] = None
    """How likely its tokens were, where `n_probs` asks for that."""


ShownAnswer: TypeAlias = NativeAnswer | dict[str, Any]
"""An answer, or the fields of it that `response_fields` names."""


@router.post("/completion", response_model=ShownAnswer | list[ShownAnswer], responses={200: DOCUMENTED_STREAM})
async def complete(
    body: NativeBody,
    request: Request,
    service: ServiceDep,
    limiter: LimiterDep,
    access: AccessDep,
    forced: ForcedModel = None,
) -> Response:
    """Go on with a text or with several, and answer in the form of llama-server."""
    prompts = prompts_in(body.prompt)
    read = await read_body(body, lambda: _request(body))
    asked = [replace(read, prompt=prompt, forced_model=forced, access=access) for prompt in prompts]
    return await _carried_out(asked, body, request, service, limiter)


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
    files = tuple((one.filename or f"file{index}", one.text) for index, one in enumerate(body.input_extra or ()))
    place = Infill(body.input_prefix, body.input_suffix, files, body.prompt)
    asked = replace(await read_body(body, lambda: _request(body)), infill=place, forced_model=forced, access=access)
    return await _carried_out([asked], body, request, service, limiter)


async def _carried_out(
    requests: Sequence[CompletionRequest],
    body: NativeOptions,
    request: Request,
    service: ServiceDep,
    limiter: LimiterDep,
) -> Response:
    found = [await generates_for(one, service) for one in requests]
    asked = [_AskedPrompt(index, one.model, _settings(one.generation, body), body) for index, one in enumerate(found)]
    handle = limiter.start([generate for one in found for generate in one.generates])
    warnings = [text for one in found for text in one.warnings]
    if body.stream:
        await handle.wait_started(request)
        stream = EventStream(_events(asked, handle, body), handle.cancel)
        put_warnings(stream, warnings)
        return stream
    empty = body.limit == 0
    answers = [
        one.answer(completion, "" if empty else completion.text, () if empty else completion.logprobs)
        for one, completion in zip(asked, await handle.completions(request), strict=True)
    ]
    found_answers = [_chosen(one.model_dump(), body.response_fields) for one in answers]
    response = JSONResponse(found_answers[0] if len(found_answers) == 1 else found_answers)
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
    """One of the prompts of a request."""

    index: int
    model: str
    """The id of the model that answers."""
    settings: dict[str, Any]
    """How the model is asked, as in `generation_settings`."""
    body: NativeOptions

    def answer(self, completion: Completion, text: str, listed: Sequence[TokenLogprob]) -> NativeAnswer:
        """Return the answer with this text, of these tokens, which a stream has sent already as far as it could."""
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
    """Return how a model is asked, under the names that llama-server has for it."""
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


async def _events(asked: Sequence[_AskedPrompt], handle: GenerationHandle, body: NativeOptions) -> Events:
    """Yield an event for each piece of text, and for each answer one that says how it ended."""
    listed = [ListedTokens() for _ in asked]
    clocks = [TimingsSoFar() for _ in asked]
    empty = body.limit == 0
    try:
        async for index, item in handle.items():
            if isinstance(item, Completion):
                rest = () if empty else listed[index].rest(item) or ()
                answer = asked[index].answer(item, "", rest)
                yield format_event(_chosen(answer.model_dump(), body.response_fields))
            elif isinstance(item, str) and item and not empty:
                tokens = listed[index].take_with(item)
                ids = [token.id for token in tokens] if body.return_tokens else []
                piece: dict[str, Any] = {"index": index, "content": item, "tokens": ids, "stop": False, "id_slot": -1}
                if body.n_probs:
                    piece["completion_probabilities"] = [one.model_dump() for one in identified_logprobs(tokens)]
                if body.timings_per_token:
                    piece["timings"] = clocks[index].after(len(tokens))
                yield format_event(piece)
    except OrchestratorError as error:
        yield format_event({"error": error_detail(error).model_dump()})
