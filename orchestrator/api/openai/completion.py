"""Carry out a request for answers, of any of the APIs: by generations on an engine, or by a whole run."""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Depends, Request, Response

from orchestrator.api.dependencies import (
    AccessDep,
    ForcedModel,
    LimiterDep,
    ResendingDep,
    ServiceDep,
    TraceparentDep,
    aside,
)
from orchestrator.api.errors import AnswerRefused, TooLarge
from orchestrator.api.limiter import Generate, GenerationHandle, GenerationLimiter, Piece
from orchestrator.api.openai.calling import CUT_OFF, AskModel, calling, tool_prompt
from orchestrator.api.openai.given_files import GivenFile, read_files
from orchestrator.api.openai.names import ORCHESTRATE, known_name, resolve_name
from orchestrator.api.openai.protocol import THINKING_ARGUMENTS, prompt_messages
from orchestrator.api.openai.run_answers import AnsweringRun, RunQuestion, answer_by_run, name_run, run_request
from orchestrator.api.openai.sampling import merged_sampling
from orchestrator.api.openai.tools import MOST_ASKED, CallTask, ClientTools, with_tools
from orchestrator.api.sse import Events, EventStream
from orchestrator.api.warnings import log_warnings, put_warnings, schema_warnings
from orchestrator.engine.client.engine import Completion, TextPiece
from orchestrator.engine.client.grammar import left_to_validator
from orchestrator.engine.contract import Generation, Infill, Message
from orchestrator.errors import InputError, Problem
from orchestrator.pool.remote.errors import ToolsRefused
from orchestrator.registry.call_syntax import REMOTE
from orchestrator.registry.options import DEFAULT_SAMPLING, SamplingOptions
from orchestrator.registry.thinking import Thinking
from orchestrator.run.steps.attempt import added
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.service.awaited_runs import Resending
from orchestrator.service.callers import NOBODY, Access
from orchestrator.service.chats import RoutedChat
from orchestrator.service.service import Service
from orchestrator.task.events import RunOptions, Usage
from orchestrator.task.taskir.validation import BadSchema, OutputSchema, SchemaMismatch

NO_TOOLS = ClientTools()
MAX_MIXED: Final = 1 << 20  # characters of all texts among the tokens of a prompt, which are tokenized at once
MAX_MIXED_TEXTS: Final = 1024  # texts among the tokens of a prompt; each takes a request to the engine


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """A request for answers, whichever API it came by. None leaves a value to the role."""

    id: str  # of the response
    model: str  # the requested name, see `openai.names`
    forced_model: str | None = None  # the model that has to answer, whatever `model` names
    traceparent: str = ""  # the caller's span, see `RunAccepted`
    access: Access = NOBODY  # of the caller, who owns the chat or the run
    messages: Sequence[Message] = ()
    # Instead of messages: a text to continue, or tokens with texts among them.
    prompt: str | tuple[int | str, ...] | None = None
    infill: Infill | None = None  # instead of messages: a gap to fill
    toolbox: ClientTools = NO_TOOLS
    schema: dict[str, Any] | bool | None = None  # JSON Schema of each answer; None for any text
    grammar: str | None = None  # GBNF grammar of each answer; not together with a schema
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)  # the `SamplingOptions` that the client sets, by name
    deadline_seconds: float | None = None  # for each answer, as in `Generation`
    seed: int | None = None  # of the first answer; each further answer has the next number
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()  # this and the next six are as in `Generation`
    logit_bias: tuple[tuple[int | str, float], ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    min_tokens: int = 0
    ignore_end: bool = False
    continues: bool = False
    thinking: Thinking | None = None
    # Variables of the model's chat template.
    template_arguments: Mapping[str, bool | int | float | str | None] = field(default_factory=dict)
    count: int = 1  # answers to the same messages
    whole: bool = False  # not streamed
    files: tuple[GivenFile, ...] = ()  # files among the messages, which only runs take
    run_events: bool = False  # whether the events of a run are sent, too
    resending: Resending = field(default_factory=Resending)  # recognizes a request that is sent again to a run
    run: AnsweringRun = field(default_factory=AnsweringRun)  # gets the id of a run that answers
    warnings: tuple[str, ...] = ()  # what is left out of the body

    @property
    def objective(self) -> str:
        """What the router decides by: the last message of the user, or the text to continue or to fill."""
        if isinstance(self.prompt, str):
            return self.prompt
        if self.infill is not None:
            return self.infill.prefix
        return next((message.content for message in reversed(self.messages) if message.role == "user"), "")


@dataclass(frozen=True, slots=True)
class StartedAnswers:
    """Answers that are being generated. Either `completions` or `stream` sends them to the client."""

    completion_request: CompletionRequest
    model: str  # id of the model that answers; `orchestrate` for a run
    handle: GenerationHandle
    warnings: tuple[str, ...]  # what of the request is not obeyed
    _request: Request
    _response: Response

    async def completions(self) -> list[Completion]:
        """Wait for all answers. Raises what an answer raises; cancels all if the client disconnects."""
        answers = await self.handle.completions(self._request)
        self._complete_headers(self._response)
        return answers

    async def wait_begun(self) -> None:
        """Wait until the first answer starts. Raises what an answer raises before that."""
        await self.handle.wait_started(self._request)

    def stream(self, events: Events) -> EventStream:
        """Return the response that sends these events. Call it after `wait_begun`."""
        stream = EventStream(events, self.handle.cancel)
        self._complete_headers(stream)
        return stream

    def _complete_headers(self, response: Response) -> None:
        if self.model == ORCHESTRATE:
            name_run(response, self.completion_request.run)
        if self.warnings:
            put_warnings(response, self.warnings)


@dataclass(frozen=True, slots=True)
class Answering:
    """What the endpoints that answer conversations depend on, whichever API they belong to."""

    service: Service
    limiter: GenerationLimiter
    resending: Resending
    forced_model: str | None
    traceparent: str
    access: Access
    request: Request
    response: Response

    async def start(self, completion_request: CompletionRequest) -> StartedAnswers:
        """Start to answer. Raises UnknownName, and InputError for a request that cannot be carried out."""
        completion_request = replace(
            completion_request,
            forced_model=self.forced_model,
            traceparent=self.traceparent,
            access=self.access,
            resending=self.resending,
        )
        prepared = await generates_for(completion_request, self.service)
        handle = self.limiter.start(prepared.generates)
        return StartedAnswers(
            completion_request, prepared.model, handle, prepared.warnings, self.request, self.response
        )


def _answering(
    service: ServiceDep,
    limiter: LimiterDep,
    resending: ResendingDep,
    access: AccessDep,
    request: Request,
    response: Response,
    traceparent: TraceparentDep,
    forced: ForcedModel = None,
) -> Answering:
    return Answering(service, limiter, resending, forced, traceparent, access, request, response)


AnsweringDep = Annotated[Answering, Depends(_answering)]


class PreparedAnswers(NamedTuple):
    generates: list[Generate]  # one for each answer
    model: str  # id of the model that answers; `orchestrate` for a run
    # The engine's request for the first answer, with the values of the role; None for a run.
    generation: Generation | None
    warnings: tuple[str, ...] = ()  # what of the request is not obeyed; logged already


async def generates_for(request: CompletionRequest, service: Service) -> PreparedAnswers:
    """Prepare the answers to a request. Raises UnknownName, and InputError if it cannot be carried out."""
    prepared = await _prepared(request, service)
    warnings = (*request.warnings, *(await aside(lambda: _schema_warnings(request)) if _has_schema(request) else ()))
    if warnings:
        log_warnings(request.id, warnings)
    return prepared._replace(warnings=warnings)


def _has_schema(request: CompletionRequest) -> bool:
    return request.schema is not None or bool(request.toolbox.tools)


def _schema_warnings(request: CompletionRequest) -> list[str]:
    # For the parts of schemas that nothing enforces.
    of_tools = (schema_warnings(f"tools/{tool.name}", tool.parameters) for tool in request.toolbox.tools)
    return [*schema_warnings("schema", request.schema), *chain.from_iterable(of_tools)]


async def _prepared(request: CompletionRequest, service: Service) -> PreparedAnswers:
    name = known_name(request.model, service)
    if name == ORCHESTRATE:
        _check_fits_run(request)
        question = RunQuestion(
            request=run_request(request.messages),
            files=await asyncio.to_thread(read_files, request.files, service.uploaded_files, request.access),
            options=RunOptions(
                temperature=request.temperature,
                top_p=request.top_p,
                seed=request.seed,
                thinking="" if request.thinking is None else str(request.thinking),
            ),
            model=request.forced_model,
            owner=request.access.key,
            traceparent=request.traceparent,
            stop=request.stop,
            max_tokens=request.max_tokens,
            shows_progress=request.thinking != "off",
            with_events=request.run_events,
            resending=request.resending,
            answering_run=request.run,
        )
        return PreparedAnswers([answer_by_run(service, question)], ORCHESTRATE, None)
    if request.files:
        raise InputError(Problem(request.files[0].where, "is a file", f"text; or the model {ORCHESTRATE}"))
    if request.run_events:
        raise InputError(Problem("run_events", f"is true, and only {ORCHESTRATE} has a run", "leave it out"))
    role, chat = await resolve_name(
        name, request.objective, service.orchestrator, request.id, request.forced_model, request.access.key
    )
    if isinstance(request.prompt, tuple):
        request = replace(request, prompt=await _tokens_of(request.prompt, role.model, service))
    generation = (
        await aside(lambda: engine_request(request, role))  # it makes the grammars of calls
        if request.toolbox.tools
        else engine_request(request, role)
    )
    generates = [_answer(service, role, request, _of_answer(generation, index)) for index in range(request.count)]
    if chat is not None:
        generates = [_recorded(chat, index, request, generate) for index, generate in enumerate(generates)]
    return PreparedAnswers(generates, role.model, generation)


def _of_answer(generation: Generation, index: int) -> Generation:
    if generation.seed is None or not index:
        return generation
    return replace(generation, seed=generation.seed + index)


async def _tokens_of(prompt: tuple[int | str, ...], model: str, service: Service) -> tuple[int, ...]:
    texts = [text for text in prompt if isinstance(text, str)]
    if len(texts) > MAX_MIXED_TEXTS:
        raise TooLarge(Problem("prompt", f"has {len(texts)} texts among its tokens", f"at most {MAX_MIXED_TEXTS}"))
    if (length := sum(map(len, texts))) > MAX_MIXED:
        raise TooLarge(Problem("prompt", f"has {length} characters among its tokens", f"at most {MAX_MIXED}"))
    tokens: list[int] = []
    for index, part in enumerate(prompt):
        # As in llama-server, what the model needs at the start, such as BOS, only comes before a text.
        if isinstance(part, str):
            tokens += (await service.orchestrator.pool.tokenize(model, part, whole=index == 0)).tokens
        else:
            tokens.append(part)
    return tuple(tokens)


def engine_request(request: CompletionRequest, role: ResolvedRole) -> Generation:
    """Return the engine's request for one answer. Values that the client omits are the role's. Raises InputError."""
    toolbox = request.toolbox
    if toolbox.tools and request.grammar is not None:
        raise InputError(Problem("grammar", "cannot be combined with tools", "one of both"))
    is_raw = request.prompt is not None or request.infill is not None
    schema = toolbox.schema if toolbox.forced else request.schema
    sampling, top_p = _sampling(request, role, is_free=schema is None and request.grammar is None)
    generation = role.request(
        () if is_raw else _messages(request, role),
        prompt=_engine_prompt(request.prompt),
        infill=request.infill,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=top_p,
        sampling=sampling,
        seed=request.seed,
        deadline_seconds=request.deadline_seconds,
        stop=request.stop,
        stop_tokens=request.stop_tokens,
        schema=schema,
        grammar=request.grammar,
        thinking=request.thinking,
        limits_thoughts=request.max_tokens is not None,  # a client's limit is for all that is generated
        template_arguments=request.template_arguments,
        logit_bias=request.logit_bias,
        logprobs=request.logprobs,
        prompt_logprobs=request.prompt_logprobs,
        min_tokens=request.min_tokens,
        ignore_end=request.ignore_end,
        continues=request.continues,
        fit=1,  # an answer that the context has no more room for ends there, with the finish reason "length"
    )
    if toolbox.tools:
        generation = with_tools(generation, _call_task(request, role))
    if (problem := generation.problem()) is not None:
        raise InputError(Problem("request", problem))
    return generation


def _messages(request: CompletionRequest, role: ResolvedRole) -> tuple[Message, ...]:
    if not request.toolbox.tools:
        return prompt_messages(request.messages, role, "")
    return tool_prompt(request.messages, role, request.toolbox)[0]


def _sampling(request: CompletionRequest, role: ResolvedRole, *, is_free: bool) -> tuple[SamplingOptions, float]:
    # Returns the options and `top_p`. An answer is free if neither a schema nor a grammar shapes it.
    usual = role.sampling if is_free else role.sampling.without_penalties()
    sampling = merged_sampling(usual, request.sampling)
    if request.top_p is None:
        return sampling, 1.0 if usual.mirostat or sampling.mirostat else role.top_p
    # Mirostat chooses among all tokens, so a `top_p` replaces it.
    return sampling if "mirostat" in request.sampling else replace(sampling, mirostat=0), request.top_p


def _engine_prompt(prompt: str | tuple[int | str, ...] | None) -> str | tuple[int, ...] | None:
    if not isinstance(prompt, tuple):
        return prompt
    tokens = tuple(token for token in prompt if isinstance(token, int))
    assert len(tokens) == len(prompt), "`generates_for` has turned the texts into tokens"
    return tokens


def _call_task(request: CompletionRequest, role: ResolvedRole) -> CallTask:
    syntax = role.calls if request.toolbox.tools else None
    # Only remote models have no known context.
    return CallTask(toolbox=request.toolbox, syntax=syntax, schema=request.schema, guides=role.context is not None)


def _answer(service: Service, role: ResolvedRole, request: CompletionRequest, generation: Generation) -> Generate:
    if request.toolbox.tools:
        ask = functools.partial(service.orchestrator.pool.generate, role.model)
        native = calling(ask, role.model, generation, _call_task(request, role))
        return _or_in_words(native, ask, role, request, generation.seed) if role.calls is REMOTE else native
    return _checked(service, role, request, generation)


def _or_in_words(
    native: Generate, ask: AskModel, role: ResolvedRole, request: CompletionRequest, seed: int | None
) -> Generate:

    async def generate(on_piece: Callable[[Piece], None], on_thought: Callable[[str], None]) -> Completion:
        try:
            return await native(on_piece, on_thought)
        except ToolsRefused:
            # The server takes no tools, so the prompt describes them.
            toolless_role = replace(role, calls=None)
            generation = replace(await aside(lambda: engine_request(request, toolless_role)), seed=seed)
        return await calling(ask, role.model, generation, _call_task(request, toolless_role))(on_piece, on_thought)

    return generate


def _checked(service: Service, role: ResolvedRole, request: CompletionRequest, generation: Generation) -> Generate:
    # Most of a schema is enforced while the answer is generated. If something is left to check, the text is held back
    # until it is complete, and the model is asked again with what is wrong. Whether a remote server enforces a schema
    # is unknown, so its answers are held back if they are not streamed.
    model = role.model
    is_loose = role.context is None and generation.schema is not None and request.whole
    has_rest = generation.schema is not None and next(left_to_validator(generation.schema), None) is not None
    hold = is_loose or has_rest

    async def generate(on_text: Callable[[str], None], on_thought: Callable[[str], None]) -> Completion:
        attempt, usages = generation, list[Usage]()
        while True:
            completion = await service.orchestrator.pool.generate(
                model, attempt, (lambda _: None) if hold else on_text, on_thought
            )
            usages.append(completion.usage)
            # The finish reason says that an answer was cut off; it is passed on as it is.
            wrong = "" if completion.finish in CUT_OFF else await _mismatch(request, completion.text)
            if not wrong:
                if hold:
                    on_text(TextPiece(completion.text, completion.logprobs))
                return replace(completion, usage=added(*usages)) if len(usages) > 1 else completion
            # A raw prompt and an infill have no messages to add a critique to.
            if not hold or not generation.messages or len(usages) == MOST_ASKED:
                raise AnswerRefused(f"the answer of {model} does not obey what was asked for: {wrong}")
            answer, critique = Message("assistant", completion.text), f"This is not accepted: {wrong}\nAnswer again."
            attempt = replace(generation, messages=(*generation.messages, answer, Message("user", critique)))

    return generate


def _recorded(chat: RoutedChat, index: int, request: CompletionRequest, generate: Generate) -> Generate:
    # Journals how an answer ended, because the router chose the model.
    async def recorded(on_text: Callable[[Piece], None], on_thought: Callable[[str], None]) -> Completion:
        with chat.answering(index) as end:
            completion = await generate(on_text, on_thought)
            end(completion, "" if completion.calls else await _mismatch(request, completion.text))
            return completion

    return recorded


async def _mismatch(request: CompletionRequest, text: str) -> str:
    if request.toolbox.forced:
        return "the answer is no call of a tool that was offered"
    if request.schema is None:
        return ""
    schema = request.schema if isinstance(request.schema, dict) else None
    try:
        # A schema may make this take a second.
        await asyncio.to_thread(lambda: OutputSchema(schema).read(text))
    except (SchemaMismatch, BadSchema) as error:
        return str(error)
    return ""


def _check_fits_run(request: CompletionRequest) -> None:
    if not request.messages:
        accepted = "a role, a persona or a model; or a chat"
        raise InputError(Problem("prompt", f"{ORCHESTRATE} takes no raw prompts", accepted))
    if request.toolbox.tools:
        raise InputError(Problem("tools", f"{ORCHESTRATE} does not take tools", "a role, a persona or a model"))
    if request.schema is not None:
        accepted = "a role, a persona or a model"
        raise InputError(Problem("response_format", f"{ORCHESTRATE} does not take a schema", accepted))
    unfit = {
        "grammar": request.grammar is not None,
        "logprobs": request.logprobs is not None,
        "logit_bias": bool(request.logit_bias),
        "stop_token_ids": bool(request.stop_tokens),
        "chat_template_kwargs": any(name not in THINKING_ARGUMENTS for name in request.template_arguments),
        "min_tokens": bool(request.min_tokens),
        "ignore_eos": request.ignore_end,
        **{name: value != getattr(DEFAULT_SAMPLING, name) for name, value in request.sampling.items()},
    }
    for name in (name for name, is_set in unfit.items() if is_set):
        accepted = "leave it out, or a role, a persona or a model"
        raise InputError(Problem(name, f"{ORCHESTRATE} gives no answer of a single model", accepted))
    if request.continues:
        problem = f"the last one is the assistant's, and {ORCHESTRATE} does not go on with an answer"
        accepted = "a last message of the user, or continue_final_message: false"
        raise InputError(Problem("messages", problem, accepted))
    if request.count > 1:
        raise InputError(Problem("n", f"is {request.count}, and {ORCHESTRATE} gives one answer", "1"))
