"""Carry out one attempt of a step that generates: prompt, answer, artifacts, gates."""

import asyncio
from dataclasses import replace
from typing import Final

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.errors import BadGrammar
from orchestrator.steps.answer import ANY_JSON, AnswerShape
from orchestrator.steps.attempt import MIN_ANSWER_TOKENS, Attempt, Models, OnGenerated, Produced
from orchestrator.steps.errors import GRACE, attempt_timeout, seconds_left
from orchestrator.steps.gating import pass_gates
from orchestrator.steps.prompt import step_messages
from orchestrator.steps.retry import with_evidence
from orchestrator.steps.trivial import refuse_trivial

AFTER_CUT_OFF: Final = 0.7
"""The temperature of attempts after an answer that was cut off, where the role has none."""


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
            refuse_trivial(completion.text, made, attempt)
        outputs, gates = await pass_gates(attempt, made, models)
        return Produced(outputs, gates, completion.usage)


def _temperature(attempt: Attempt) -> float | None:
    """Return the temperature of the attempt, None for the role's.

    Without randomness a small model that was cut off because it found no end finds none the next time either.
    """
    cut = any(failure.cut_at is not None for failure in attempt.failures)
    return AFTER_CUT_OFF if cut and attempt.role.prompts.shorter and not attempt.role.temperature else None


async def _complete(
    attempt: Attempt, shape: AnswerShape, models: Models, scope: asyncio.Timeout, on_text: OnText | None
) -> Completion:
    action = with_evidence(attempt.step.action, attempt.failures, attempt.role.prompts)
    prompt = step_messages(attempt.role.system, attempt.role.persona, attempt.inputs, action)
    request = attempt.role.request(
        prompt,
        max_tokens=attempt.max_tokens,
        temperature=_temperature(attempt),
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
