"""Ask the judge role on behalf of a gate."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.engine.errors import EngineError
from orchestrator.gates import Judge, NoVerdict, Opinion, no_judge
from orchestrator.pool.errors import PoolError
from orchestrator.steps.attempt import MIN_ANSWER_TOKENS, Models, ResolvedRole
from orchestrator.steps.blame import failure_from
from orchestrator.steps.prompt import Input, step_messages


def judge_of(role: ResolvedRole | None, models: Models, slack: float) -> Judge:
    """Return what lets the role judge, in the prompt layout of all steps; without a role, what refuses to."""
    if role is None:
        return no_judge

    async def judge(inputs: Sequence[tuple[str, str]], action: str, schema: Mapping[str, Any]) -> Opinion:
        prompt = step_messages(role.system, "", [Input(name, text) for name, text in inputs], action)
        try:
            request = role.request(prompt, fit=MIN_ANSWER_TOKENS, schema=dict(schema), slack=slack)
            completion = await models.generate(role.model, request, None)
        except (EngineError, PoolError) as error:
            blamed = failure_from(error)
            raise NoVerdict(
                f"the judge could not be asked: {blamed.message}", blamed.kind, final=blamed.final
            ) from error
        return Opinion(completion.text, completion.usage.prompt_tokens + completion.usage.output_tokens)

    return judge
