"""Send what an attempt made through the gates of its step, and ask the judge role for gates that need a model."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.engine.errors import EngineError
from orchestrator.events import GateResult
from orchestrator.gates import (
    Artifact,
    GateContext,
    GateError,
    Judge,
    JudgeAnswer,
    Scope,
    file_name,
    no_judge,
    run_gates,
)
from orchestrator.pool.errors import PoolError
from orchestrator.steps.attempt import MIN_ANSWER_TOKENS, Attempt, Models
from orchestrator.steps.errors import AttemptError, attempt_timeout, map_error
from orchestrator.steps.prompt import StepInput, step_messages
from orchestrator.steps.role import ResolvedRole
from orchestrator.taskir.fields import ARTIFACT

_FILE = re.compile(ARTIFACT)
"""Names that a file may have. Inputs can have labels that are no such names."""


def judge_of(role: ResolvedRole | None, models: Models, slack: float) -> Judge:
    """Return the function by which gates ask the role to judge, in the prompt layout of all steps.

    Without a role the function raises `NoVerdict`.
    """
    if role is None:
        return no_judge

    async def judge(inputs: Sequence[tuple[str, str]], action: str, schema: Mapping[str, Any]) -> JudgeAnswer:
        prompt = step_messages(role.system, "", [StepInput(name, text) for name, text in inputs], action)
        try:
            request = role.request(prompt, fit=MIN_ANSWER_TOKENS, schema=dict(schema), slack=slack)
            completion = await models.generate(role.model, request, None)
        except (EngineError, PoolError) as error:
            failure = map_error(error)
            raise GateError(
                f"the judge could not be asked: {failure.message}", failure.kind, final=failure.final
            ) from error
        usage = completion.usage
        return JudgeAnswer(completion.text, usage.prompt_tokens + usage.output_tokens, usage.work_seconds)

    return judge


async def pass_gates(
    attempt: Attempt, outputs: Mapping[str, bytes], models: Models
) -> tuple[Mapping[str, bytes], tuple[GateResult, ...]]:
    """Return the outputs, which a gate may have reformatted, and the results of the gates.

    Raises `AttemptError` for outputs that do not pass. The time limit of the step does not count here: gates have
    limits of their own, because they run at a lower priority than engines.
    """
    if not attempt.gates:
        return outputs, ()
    artifacts = [Artifact(name, data) for name, data in outputs.items()]
    async with attempt_timeout(None):
        found = await run_gates(attempt.gates, artifacts, gate_context(attempt, models))
    if found.failure:
        raise AttemptError(found.failure, found.results)
    return {artifact.name: artifact.data for artifact in found.artifacts}, found.results


def gate_context(attempt: Attempt, models: Models) -> GateContext:
    """Return what the gates of an attempt may use."""
    checks = attempt.checks
    return GateContext(
        Scope(attempt.step, tuple(test.name for test in checks.tests), checks.commands),
        reads={file_name(one.name): one.text.encode() for one in attempt.inputs if _FILE.fullmatch(one.name)},
        tests={one.name: one.text.encode() for one in checks.tests},
        users=checks.users,
        run=checks.run,
        judge=judge_of(checks.judge, models, attempt.slack),
    )
