"""Carry out one attempt of a step that generates: prompt, answer, artifacts, gates."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.errors import BadGrammar
from orchestrator.events import Failure, FailureKind
from orchestrator.failures import feedback
from orchestrator.steps.answer import ANY_JSON, AnswerShape
from orchestrator.steps.attempt import MIN_ANSWER_TOKENS, Attempt, Models, OnGenerated, Produced
from orchestrator.steps.errors import GRACE, AttemptError, attempt_timeout, seconds_left
from orchestrator.steps.gating import pass_gates
from orchestrator.steps.prompt import after_failure, echoes_failure, step_messages


class GenerateRunner:
    """Carries out attempts at steps of kind `generate` that have no tools."""

    async def run(
        self,
        attempt: Attempt,
        models: Models,
        on_generated: OnGenerated = lambda usage: None,
        on_text: OnText | None = None,
    ) -> Produced:
        """Return what the attempt made, as `StepRunner.run` says.

        The step's `timeout_seconds` covers all but the gates. It is given to the model as its deadline, so that the
        usage is known when time runs out; a model that does not keep it is stopped `GRACE` seconds later.
        """
        async with attempt_timeout(attempt.step.timeout_seconds, GRACE) as scope:
            shape = AnswerShape(attempt.step)
            completion = await _complete(attempt, shape, models, scope, on_text)
            on_generated(completion.usage)
            made = shape.read(completion)
            _refuse_echo(completion, attempt)
        outputs, gates = await pass_gates(attempt, made, models)
        return Produced(outputs, gates, completion.usage)


def _refuse_echo(completion: Completion, attempt: Attempt) -> None:
    """Raise AttemptError for an answer that repeats the prompt's words about earlier failures instead of doing better.

    A weak model does that, and no gate might notice.
    """
    if echoes_failure(completion.text, feedback(attempt.failures)):
        message = "the answer repeats what was said of the answer before it"
        raise AttemptError(Failure(FailureKind.SCHEMA, message, message))


def with_evidence(action: str, failures: Sequence[Failure]) -> str:
    """Return the action with the evidence of earlier failures, shortened, for the next prompt."""
    return after_failure(action, feedback(failures))


async def _complete(
    attempt: Attempt, shape: AnswerShape, models: Models, scope: asyncio.Timeout, on_text: OnText | None
) -> Completion:
    action = with_evidence(attempt.step.action, attempt.failures)
    prompt = step_messages(attempt.role.system, attempt.role.persona, attempt.inputs, action)
    request = attempt.role.request(
        prompt,
        max_tokens=attempt.max_tokens,
        fit=MIN_ANSWER_TOKENS,
        seed=attempt.seed,
        schema=shape.schema,
        deadline_seconds=seconds_left(scope, GRACE),
        slack=attempt.slack,
    )
    try:
        return await models.generate(attempt.role.model, request, on_text)
    except BadGrammar:
        # The schema cannot become a grammar. The model then writes any JSON, and the answer is validated afterwards.
        loose = replace(request, schema=ANY_JSON, deadline_seconds=seconds_left(scope, GRACE))
        return await models.generate(attempt.role.model, loose, on_text)
