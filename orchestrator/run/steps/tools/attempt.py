"""One attempt of a step with tools: the one call that the document gives, or those its model makes."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Self

from orchestrator.engine.client.engine import OnText
from orchestrator.engine.contract import Message
from orchestrator.run.steps.answer import outputs_from
from orchestrator.run.steps.attempt import (
    Attempt,
    AttemptError,
    Models,
    OnGenerated,
    Produced,
    StepRunner,
    attempt_timeout,
    reporting_usage,
)
from orchestrator.run.steps.context.conversation import Conversation
from orchestrator.run.steps.gating import text_of
from orchestrator.run.steps.means import Means
from orchestrator.run.steps.role import shown_previous, step_messages, with_evidence
from orchestrator.run.steps.tools.actions import instructions
from orchestrator.run.steps.tools.contract import Tool, ToolError, ToolServerFailed
from orchestrator.run.steps.tools.loop import ToolLoop
from orchestrator.run.steps.tools.servers import ToolServers
from orchestrator.run.steps.tools.toolbox import Toolbox
from orchestrator.run.steps.trivial import refuse_trivial
from orchestrator.task.events import Failure, FailureKind, Usage
from orchestrator.task.taskir.json_text import compact_json
from orchestrator.task.taskir.models import fill_arguments


def runner(means: Means) -> StepRunner:
    """Return what carries out an attempt at a step of kind `tool`."""
    return ToolRunner.of(means)


@dataclass(frozen=True, slots=True)
class ToolRunner:
    toolbox: Toolbox
    context: int | None  # tokens of one sequence; None if unknown
    turns: int = 200  # answers that the model may take to finish

    @classmethod
    def of(cls, means: Means) -> Self:
        return cls(means.toolbox(), means.context_tokens)

    async def run(
        self,
        attempt: Attempt,
        models: Models,
        on_generated: OnGenerated = lambda usage: None,
        on_text: OnText | None = None,
    ) -> Produced:
        if attempt.step.arguments is not None:
            return await self._call(attempt, attempt.step.arguments, on_generated)
        opening = _opening(attempt, self.toolbox)
        talk = Conversation(attempt, models, opening, self.context, prunes=True, on_text=on_text)
        async with attempt_timeout(attempt.step.timeout_seconds) as scope:
            with reporting_usage(scope, on_generated, lambda: talk.usage):
                loop = ToolLoop(attempt, self.toolbox, talk)
                value = await loop.run(self.turns)
            written = self.toolbox.context.workspace.written
            try:
                outputs = outputs_from(attempt.step, value, written)
                answered = {name: data for name, data in outputs.items() if name not in written}
                # After calls that did something, "Done" may be all that there is to say.
                refuse_trivial(text_of(answered), {} if loop.acted else answered, attempt)
            except AttemptError as error:
                raise error.with_answer(value if isinstance(value, str) else compact_json(value)) from error
        return Produced(outputs, talk.usage)

    async def _call(self, attempt: Attempt, arguments: Mapping[str, Any], on_generated: OnGenerated) -> Produced:
        async with attempt_timeout(attempt.step.timeout_seconds) as scope:
            with reporting_usage(scope, on_generated, Usage):
                value = await _called(attempt, arguments, self.toolbox)
            outputs = outputs_from(attempt.step, value, self.toolbox.context.workspace.written)
        return Produced(outputs, Usage())


@dataclass(frozen=True, slots=True)
class ServedRunner:
    """Carries out one attempt while the MCP servers whose tools its step names are connected."""

    servers: ToolServers
    runner: Callable[[Mapping[str, Tool]], StepRunner]  # from the servers' tools by name

    async def run(
        self,
        attempt: Attempt,
        models: Models,
        on_generated: OnGenerated = lambda usage: None,
        on_text: OnText | None = None,
    ) -> Produced:
        # Connecting does not count for `timeout_seconds`: each server has its own `start_seconds`.
        async with AsyncExitStack() as stack:
            try:
                served = await stack.enter_async_context(self.servers.open(attempt.step.tools))
            except ToolServerFailed as error:
                raise AttemptError(Failure(FailureKind.INFRASTRUCTURE, str(error))) from error
            return await self.runner(served).run(attempt, models, on_generated, on_text)


async def _called(attempt: Attempt, arguments: Mapping[str, Any], toolbox: Toolbox) -> str | None:
    # Failures are final, since the same call would end the same way again.
    (name,) = attempt.step.tools
    try:
        result = await toolbox.call(name, fill_arguments(arguments, _texts(attempt)))
    except ToolError as error:
        raise AttemptError(Failure(error.kind, f"{name}: {error}", final=True)) from error
    if result.failure is not None:
        failure = result.failure
        raise AttemptError(Failure(failure.kind, f"{name}: {failure.message}", failure.evidence, final=True))
    return result.value if result.text is None else result.text


def _texts(attempt: Attempt) -> dict[str, str]:
    texts = {item.name: item.text for item in attempt.inputs}
    if attempt.step.foreach is not None:
        # The list's name stands for the child's item.
        texts[attempt.step.foreach] = attempt.inputs[-1].text
    return texts


def _opening(attempt: Attempt, toolbox: Toolbox) -> tuple[Message, ...]:
    prompts = attempt.role.prompts
    request = with_evidence(attempt.step.action, attempt.failures, prompts, shown_previous(attempt.previous))
    action = instructions(prompts.tools, request, toolbox.tools)
    return step_messages(attempt.role.system, attempt.role.persona, attempt.inputs, action)
