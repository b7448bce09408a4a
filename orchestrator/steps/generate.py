"""Carry out one attempt of a step that generates: prompt, answer, artifacts, gates."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.errors import BadGrammar
from orchestrator.events import Failure, FailureKind
from orchestrator.failures import feedback
from orchestrator.steps.answer import ANY_JSON, AnswerShape
from orchestrator.steps.attempt import MIN_ANSWER_TOKENS, Attempt, Models, OnGenerated, Produced
from orchestrator.steps.errors import GRACE, AttemptError, attempt_timeout, seconds_left
from orchestrator.steps.gating import pass_gates
from orchestrator.steps.prompt import after_failure, echoes_failure, echoes_task, echoes_text, step_messages
from registry.prompts import PromptSet

WORDS_A_TOKEN: Final = 0.5
"""How many words are asked for instead of a token. English has about 0.75, and models write more than asked for."""
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
            refuse_echo(completion.text, attempt)
        outputs, gates = await pass_gates(attempt, made, models)
        return Produced(outputs, gates, completion.usage)


def refuse_echo(answer: str, attempt: Attempt) -> None:
    """Raise AttemptError for an answer that repeats the prompt: what it says of earlier failures, or the task alone.

    A weak model does that, and no gate might notice.
    """
    action = attempt.step.action
    asked = with_evidence(action, attempt.failures, attempt.role.prompts)
    told = asked.removeprefix(action)
    if echoes_failure(answer, feedback(attempt.failures)) or (told and echoes_text(answer, told)):
        message = "the answer repeats what was said of the answer before it"
    elif echoes_task(answer, action) or echoes_task(answer, asked):
        message = "the answer only repeats the task"
    else:
        return
    raise AttemptError(Failure(FailureKind.SCHEMA, message, message))


def with_evidence(action: str, failures: Sequence[Failure], prompts: PromptSet) -> str:
    """Return the action with the evidence of earlier failures, shortened, for the next prompt.

    Where the prompts have words for it, an answer that was cut off is not told of: the next one is asked to be short,
    and shorter each time. Small models repeat what they are told of an answer, and do what they are asked for.
    """
    if not prompts.shorter:
        return after_failure(action, feedback(failures))
    told = after_failure(action, feedback([failure for failure in failures if failure.cut_at is None]))
    cut = [failure.cut_at for failure in failures if failure.cut_at is not None]
    if not cut:
        return told
    words = max(1, round(WORDS_A_TOKEN * cut[0] / 2 ** len(cut)))
    return f"{told}\n{prompts.shorter.format(words=words)}"


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
