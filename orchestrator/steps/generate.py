"""Carry out one attempt of a step that generates: prompt, answer, artifacts, gates."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.engine.client import Completion
from orchestrator.engine.contract import Generation
from orchestrator.engine.errors import BadGrammar, EngineError, PromptTooLong
from orchestrator.events import Failure, FailureKind, GateResult, Usage
from orchestrator.gates import Artifact, GateContext, failure_of, run_gates
from orchestrator.pool.errors import PoolError
from orchestrator.steps.answer import ANY_JSON, AnswerShape
from orchestrator.steps.blame import failure_from
from orchestrator.steps.errors import AttemptError
from orchestrator.steps.prompt import Input, after_failure, step_messages
from orchestrator.taskir import Step

EVIDENCE_LENGTH = 600
"""Characters of one earlier failure's evidence that go into the prompt."""

MIN_ANSWER_TOKENS = 16
"""A prompt that leaves less of the context than this (or than the answer's limit) is too long."""

OnText = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a step, with all that was decided about it.

    `step` is concrete: a `foreach` child has outputs `name[0]`. `system` and `persona` are texts. `failures` are those
    of earlier attempts, oldest first. `gates` are those asked for. `context` is how many tokens one sequence of `model`
    may have, None to leave that to the engine; `max_tokens` holds where the step has no limit of its own.
    """

    step: Step
    model: str
    system: str
    persona: str = ""
    inputs: tuple[Input, ...] = ()
    failures: tuple[Failure, ...] = ()
    gates: tuple[str, ...] = ()
    context: int | None = None
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    slack: float = 0.0


@dataclass(frozen=True, slots=True)
class Models:
    """How to ask a model (its id comes first): the pool's `count` and `generate`."""

    count: Callable[[str, Sequence[tuple[str, str]]], Awaitable[int]]
    generate: Callable[[str, Generation, OnText | None], Awaitable[Completion]]


@dataclass(frozen=True, slots=True)
class Produced:
    """What an attempt made: artifacts by name, the gates' results, and what it took."""

    outputs: Mapping[str, bytes]
    gates: tuple[GateResult, ...]
    usage: Usage


async def run_attempt(
    attempt: Attempt,
    models: Models,
    on_generated: Callable[[Usage], None] = lambda usage: None,
    on_text: OnText | None = None,
) -> Produced:
    """Return what the attempt made. Raises `AttemptError`, and nothing else but `CancelledError`.

    `on_generated` is called once the model is done, whatever its answer is worth, before anything looks at it;
    `on_text` with pieces of the answer as they come. The step's `timeout_seconds` covers everything.
    """
    limit = attempt.step.timeout_seconds
    scope = asyncio.timeout(limit)
    try:
        async with scope:
            shape = AnswerShape(attempt.step)
            completion = await _complete(attempt, shape, models, scope, on_text)
            on_generated(completion.usage)
            return await _judged(attempt, shape, completion)
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise AttemptError(Failure(FailureKind.TIMEOUT, f"not done within {limit:g} s")) from error
    except (EngineError, PoolError) as error:
        raise AttemptError(failure_from(error)) from error


def with_evidence(action: str, failures: Sequence[Failure]) -> str:
    """Return the action with what earlier answers failed for, each shortened to what matters."""
    return after_failure(action, (_clip(failure.evidence) for failure in failures if failure.evidence))


async def _complete(
    attempt: Attempt, shape: AnswerShape, models: Models, scope: asyncio.Timeout, on_text: OnText | None
) -> Completion:
    action = with_evidence(attempt.step.action, attempt.failures)
    prompt = step_messages(attempt.system, attempt.persona, attempt.inputs, action)
    messages = tuple((message.role, message.content) for message in prompt)
    max_tokens = attempt.step.max_tokens or attempt.max_tokens
    if attempt.context is not None:
        max_tokens = _room(attempt.context, await models.count(attempt.model, messages), max_tokens)
    deadline = scope.when()
    request = Generation(
        messages=messages,
        max_tokens=max_tokens,
        temperature=attempt.temperature,
        top_p=attempt.top_p,
        seed=attempt.seed,
        schema=shape.schema,
        deadline_seconds=None if deadline is None else deadline - asyncio.get_running_loop().time(),
        slack=attempt.slack,
    )
    try:
        return await models.generate(attempt.model, request, on_text)
    except BadGrammar:
        # A schema that no grammar can follow is still a schema: the model writes JSON, the validator judges it.
        return await models.generate(attempt.model, replace(request, schema=ANY_JSON), on_text)


def _room(context: int, prompt_tokens: int, max_tokens: int) -> int:
    """Return how many tokens the answer may have. Raises `PromptTooLong` where they would be too few to be of use."""
    left = context - prompt_tokens
    if left < min(MIN_ANSWER_TOKENS, max_tokens):
        raise PromptTooLong(prompt_tokens, context, max_tokens)
    return min(left, max_tokens)


async def _judged(attempt: Attempt, shape: AnswerShape, completion: Completion) -> Produced:
    outputs = shape.read(completion)
    artifacts = [Artifact(name, data) for name, data in outputs.items()]
    gates = await run_gates(attempt.gates, artifacts, GateContext(attempt.step))
    if failure := failure_of(gates):
        raise AttemptError(failure, gates)
    return Produced(outputs, gates, completion.usage)


def _clip(evidence: str) -> str:
    if len(evidence) <= EVIDENCE_LENGTH:
        return evidence
    return f"{evidence[: EVIDENCE_LENGTH // 2]} … {evidence[-EVIDENCE_LENGTH // 2 :]}"
