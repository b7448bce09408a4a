"""Send what an attempt has made through the gates of its step, and ask the judge role for gates that need a model."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.engine.errors import EngineError
from orchestrator.pool.errors import PoolError
from orchestrator.run.gates import (
    Artifact,
    GateContext,
    GateError,
    Judge,
    JudgeAnswer,
    RunJob,
    Scope,
    file_name,
    no_judge,
    no_sandbox,
    run_gates,
)
from orchestrator.run.steps.attempt import MIN_ANSWER_TOKENS, Models
from orchestrator.run.steps.errors import AttemptError, attempt_timeout, map_error
from orchestrator.run.steps.prompt import StepInput, step_messages
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.task.events import GateResult
from orchestrator.task.taskir import Commands, Step
from orchestrator.task.taskir.fields import ARTIFACT

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The gates of one step, and what they may use."""

    step: Step
    gates: tuple[str, ...] = ()
    """The gates that the outputs have to pass."""
    inputs: tuple[StepInput, ...] = ()
    """What the step reads."""
    tests: tuple[StepInput, ...] = ()
    """Inputs of the task that are tests of the step, though it does not read them."""
    users: frozenset[str] = frozenset()
    """The names of what the step reads that the user gave: inputs of the task and files."""
    commands: Commands = field(default_factory=Commands)
    """The commands of the task, such as the one that builds it."""
    judge: ResolvedRole | None = None
    """The role that judges; None where this installation has none."""
    run: RunJob = no_sandbox
    slack: float = 0.0
    """As in `Attempt`."""


async def pass_gates(
    checks: Checks, outputs: Mapping[str, bytes], models: Models
) -> tuple[Mapping[str, bytes], tuple[GateResult, ...]]:
    """Return the outputs, which a gate may have reformatted, and the results of the gates.

    Raises `AttemptError` for outputs that do not pass. The time limit of the step does not count here: gates have
    limits of their own, because they run at a lower priority than engines.
    """
    if not checks.gates:
        return outputs, ()
    artifacts = [Artifact(name, data) for name, data in outputs.items()]
    async with attempt_timeout(None):
        found = await run_gates(checks.gates, artifacts, gate_context(checks, models))
    if found.failure:
        raise AttemptError(found.failure, found.results, answer=text_of(outputs))
    return {artifact.name: artifact.data for artifact in found.artifacts}, found.results


def gate_context(checks: Checks, models: Models) -> GateContext:
    """Return what the gates of a step may use."""
    return GateContext(
        Scope(checks.step, tuple(test.name for test in checks.tests), checks.commands),
        reads={file_name(one.name): one.text.encode() for one in checks.inputs if _FILE.fullmatch(one.name)},
        tests={one.name: one.text.encode() for one in checks.tests},
        users=checks.users,
        run=checks.run,
        judge=judge_of(checks.judge, models, checks.slack),
    )


def text_of(outputs: Mapping[str, bytes]) -> str:
    """Return the text of outputs; that of several has the name of each before it."""
    texts = {name: data.decode(errors="replace") for name, data in outputs.items()}
    if len(texts) == 1:
        return "".join(texts.values())
    return "\n\n".join(f"[{name}]\n{text}" for name, text in texts.items())
