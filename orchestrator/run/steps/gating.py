"""Send an attempt's outputs through the gates of its step, with the judge role for gates that need a model."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.engine.errors import EngineError
from orchestrator.pool.errors import PoolError
from orchestrator.run.gates.contract import (
    Artifact,
    GateContext,
    GateError,
    Judge,
    JudgeAnswer,
    RunJob,
    no_judge,
    no_sandbox,
)
from orchestrator.run.gates.pipeline import run_gates
from orchestrator.run.gates.planned import Scope, file_name
from orchestrator.run.steps.attempt import MIN_ANSWER_TOKENS, AttemptError, Models, attempt_timeout, map_error
from orchestrator.run.steps.role import ResolvedRole, StepInput, step_messages
from orchestrator.task.events import GateResult
from orchestrator.task.taskir.fields import ARTIFACT
from orchestrator.task.taskir.models import Commands, Step

# An input's label need not be a possible name of a file.
_FILE = re.compile(ARTIFACT)


def judge_of(role: ResolvedRole | None, models: Models, slack: float) -> Judge:
    """Return the function by which gates ask the role to judge. Without a role it raises `NoVerdict`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    step: Step
    gates: tuple[str, ...] = ()
    inputs: tuple[StepInput, ...] = ()  # what the step reads
    tests: tuple[StepInput, ...] = ()  # inputs of the task that test the step, though it does not read them
    users: frozenset[str] = frozenset()  # names of inputs and files that the user gave
    commands: Commands = field(default_factory=Commands)  # of the task, such as its build
    judge: ResolvedRole | None = None  # None if this installation has no judge
    run: RunJob = no_sandbox
    slack: float = 0.0  # seconds, as in `Attempt`


async def pass_gates(
    checks: Checks, outputs: Mapping[str, bytes], models: Models
) -> tuple[Mapping[str, bytes], tuple[GateResult, ...]]:
    """Return the outputs, which a gate may have reformatted, and the results. Raises `AttemptError`."""
    artifacts = [Artifact(name, data) for name, data in outputs.items()]
    # The step's time limit does not apply: gates have their own, since they run at a lower priority than engines.
    async with attempt_timeout(None):
        outcome = await run_gates(checks.gates, artifacts, gate_context(checks, models))
    if outcome.failure:
        raise AttemptError(outcome.failure, outcome.results, answer=text_of(outputs))
    return {artifact.name: artifact.data for artifact in outcome.artifacts}, outcome.results


def gate_context(checks: Checks, models: Models) -> GateContext:
    return GateContext(
        Scope(checks.step, tuple(test.name for test in checks.tests), checks.commands),
        reads={file_name(item.name): item.text.encode() for item in checks.inputs if _FILE.fullmatch(item.name)},
        tests={item.name: item.text.encode() for item in checks.tests},
        users=checks.users,
        run=checks.run,
        judge=judge_of(checks.judge, models, checks.slack),
    )


def text_of(outputs: Mapping[str, bytes]) -> str:
    """Return the text of the outputs; several are shown each below its name."""
    texts = {name: data.decode(errors="replace") for name, data in outputs.items()}
    if len(texts) == 1:
        return "".join(texts.values())
    return "\n\n".join(f"[{name}]\n{text}" for name, text in texts.items())
