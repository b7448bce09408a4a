"""One attempt of a step that generates: prompt, answer, artifacts."""

import asyncio
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Message
from orchestrator.engine.errors import BadGrammar
from orchestrator.registry.prompts import PromptSet
from orchestrator.run.gates.planned import file_name, is_json
from orchestrator.run.steps.answer import ANY_JSON, AnswerShape
from orchestrator.run.steps.attempt import (
    GRACE,
    MIN_ANSWER_TOKENS,
    Attempt,
    AttemptError,
    Models,
    OnGenerated,
    Produced,
    StepRunner,
    attempt_timeout,
    seconds_left,
)
from orchestrator.run.steps.means import Means
from orchestrator.run.steps.role import PREVIOUS_LENGTHS, shortened, step_messages, with_evidence
from orchestrator.run.steps.tools.attempt import ToolRunner
from orchestrator.run.steps.trivial import refuse_trivial
from orchestrator.task.taskir.models import Step

# The share of the context for the next answer if the prompt shows the previous one.
ROOM: Final = 1 / 3
# The temperature after a cut-off answer if the role has none: without randomness, a small model that found no end
# finds none the next time.
AFTER_CUT_OFF: Final = 0.7
DATA: Final = (".csv", ".tsv", ".yaml", ".yml", ".xml", ".html", ".toml", ".ini")  # files that are no prose and no code
ONLY_FILE: Final = "Write only the content of {name}."


def runner(means: Means) -> StepRunner:
    """Return what carries out an attempt at a step of kind `generate`."""
    return ToolRunner.of(means) if means.attempt.step.tools else GenerateRunner()


class GenerateRunner:
    """Carries out attempts at steps of kind `generate` that have no tools."""

    async def run(
        self,
        attempt: Attempt,
        models: Models,
        on_generated: OnGenerated = lambda usage: None,
        on_text: OnText | None = None,
    ) -> Produced:
        # The model gets the time limit as its deadline, so that its usage is known. If it misses the deadline, it is
        # stopped `GRACE` seconds later.
        async with attempt_timeout(attempt.step.timeout_seconds, GRACE) as scope:
            shape = AnswerShape(attempt.step)
            completion = await _complete(attempt, shape, models, scope, on_text)
            on_generated(completion.usage)
            try:
                outputs = shape.read(completion)
                refuse_trivial(completion.text, outputs, attempt)
            except AttemptError as error:
                raise error.with_answer(completion.text) from error
        return Produced(outputs, completion.usage, completion.text)


def _temperature(attempt: Attempt) -> float | None:
    cut = any(failure.cut_at is not None for failure in attempt.failures)
    return AFTER_CUT_OFF if cut and attempt.role.prompts.shorter and not attempt.role.temperature else None


def _order(step: Step, prompts: PromptSet) -> str:
    # Asked for a file of data, a small model explains at length how a program would write it, and shows it at the end.
    # The embedded models were not trained on this sentence.
    names = [
        name for name in map(file_name, step.outputs) if PurePosixPath(name).suffix in DATA and name in step.action
    ]
    only = prompts.shorter and len(step.outputs) == 1 and names and not is_json(step, step.outputs[0])
    return f"{step.action}\n{ONLY_FILE.format(name=names[0])}" if only else step.action


async def _prompt(attempt: Attempt, models: Models) -> tuple[Message, ...]:
    role = attempt.role

    def prompt(length: int) -> tuple[Message, ...]:
        previous = shortened(attempt.previous, length)
        action = with_evidence(_order(attempt.step, role.prompts), attempt.failures, role.prompts, previous)
        return step_messages(role.system, role.persona, attempt.inputs, action)

    # Show as much of the previous answer as leaves room for a new one.
    *lengths, last = PREVIOUS_LENGTHS if attempt.previous and role.prompts.listed_names else (0,)
    for length in lengths:
        shown = prompt(length)
        if role.context is None or await models.count(role.model, shown, role.priority) <= role.context * (1 - ROOM):
            return shown
    return prompt(last)


async def _complete(
    attempt: Attempt, shape: AnswerShape, models: Models, scope: asyncio.Timeout, on_text: OnText | None
) -> Completion:
    prompt = await _prompt(attempt, models)
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
