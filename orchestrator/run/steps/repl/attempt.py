"""One attempt of a step whose model writes code: instructions, code, output, more code, until `final`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Message
from orchestrator.run.fences import blocks_of
from orchestrator.run.steps.answer import outputs_from
from orchestrator.run.steps.attempt import (
    Attempt,
    AttemptError,
    Models,
    OnGenerated,
    Produced,
    StepRunner,
    added,
    attempt_timeout,
    reporting_usage,
)
from orchestrator.run.steps.context.conversation import Conversation
from orchestrator.run.steps.context.window import Turn
from orchestrator.run.steps.means import Means
from orchestrator.run.steps.repl.host import Host
from orchestrator.run.steps.repl.outputs import Outputs
from orchestrator.run.steps.repl.session import Interpreter, Open, interpreter
from orchestrator.run.steps.repl.subcalls import ReplBudget, Spending, SubcallModels
from orchestrator.run.steps.role import StepInput, shown_previous, step_messages, with_evidence
from orchestrator.run.steps.tools.actions import described
from orchestrator.run.steps.tools.contract import Tool
from orchestrator.run.steps.tools.toolbox import OnCall, Toolbox
from orchestrator.task.events import Failure, FailureKind, Usage


def runner(means: Means) -> StepRunner:
    """Return what carries out an attempt at a step of kind `repl`."""
    return ReplRunner(
        sessions=means.sessions,
        toolbox=means.toolbox(),
        subcalls=means.subcalls(),
        on_call=means.journal_call,
        folder=means.folder,
        context=means.context_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplRunner:
    sessions: Open
    toolbox: Toolbox
    subcalls: SubcallModels
    on_call: OnCall  # gets every finished call of a tool or a model
    folder: Path  # for the outputs of the code
    context: int | None  # tokens of one sequence; None if unknown
    budget: ReplBudget = field(default_factory=ReplBudget)

    async def run(
        self,
        attempt: Attempt,
        models: Models,
        on_generated: OnGenerated = lambda usage: None,
        on_text: OnText | None = None,
    ) -> Produced:
        """Run as `StepRunner.run`. The usage is that of the step's model and of all models that its code asked."""
        budget = replace(self.budget, seconds=attempt.step.timeout_seconds or self.budget.seconds)
        spending, outputs = Spending(budget), Outputs(self.folder)
        host = Host(self.toolbox, outputs, self.subcalls, spending, self.on_call, attempt.slack)
        talk = Conversation(attempt, models, _head(attempt, self.toolbox), self.context, on_text=on_text)

        def usage() -> Usage:
            return added(talk.usage, spending.usage)

        async with attempt_timeout(budget.seconds) as scope:
            with reporting_usage(scope, on_generated, usage):
                async with interpreter(self.sessions, host, outputs, budget) as running:
                    await running.feed(self.toolbox.context.workspace.inputs)
                    artifacts = await _turns(attempt, talk, running, self)
        return Produced(artifacts, usage())


async def _turns(attempt: Attempt, talk: Conversation, running: Interpreter, work: ReplRunner) -> dict[str, bytes]:
    error: str | None = "the step has not begun"
    for _ in range(work.budget.turns):
        completion = await talk.ask()
        if reason := _why_not_run(completion):
            await talk.add(Turn(completion.text, reason))
            continue
        end = await running.run(code_in(completion.text))
        error = end.error
        if end.final:
            try:
                return outputs_from(attempt.step, end.value, work.toolbox.context.workspace.written)
            except AttemptError as refused:
                error = f"final was refused: {refused.failure.message}"
        came = "\n".join(filter(None, (end.shown, error if end.final else ""))) or "(nothing)"
        await talk.add(Turn(completion.text, came, rest=end.rest))
    kind = FailureKind.CODE if error else FailureKind.LOGIC
    message = f"no final(value) within {work.budget.turns} turns"
    raise AttemptError(Failure(kind, message, f"{message}\n{error}" if error else message))


def _head(attempt: Attempt, toolbox: Toolbox) -> tuple[Message, ...]:
    previous = shown_previous(attempt.previous)
    action = with_evidence(attempt.step.action, attempt.failures, attempt.role.prompts, previous)
    text = instructions(attempt.role.prompts.repl, action, attempt.inputs, attempt.step.outputs, toolbox.tools)
    return step_messages(attempt.role.system, attempt.role.persona, (), text)


def _why_not_run(completion: Completion) -> str:
    if completion.finish != "stop":
        return f"The answer did not come to its end ({completion.finish}). Nothing was run: write less at a time."
    return "" if code_in(completion.text) else "There was no code in the answer."


# Characters of an input that the model is shown; its code has the whole text.
GLIMPSE = 200


def instructions(
    how: str, action: str, inputs: Sequence[StepInput], outputs: Sequence[str], tools: Sequence[Tool]
) -> str:
    """Return the action, `how` code can act (`PromptSet.repl`), tools, glimpses of inputs, and output names."""
    lines = [how]
    if tools:
        lines += ["tool(name, ...)              calls one of:", described(tools)]
    lines += [f"input {item.name} ({len(item.text)} characters): {_glimpse(item.text)}" for item in inputs]
    result = f"Outputs: {', '.join(outputs)}" if outputs else "No outputs"
    return "\n".join([action, "", *lines, result])


def code_in(answer: str) -> str:
    """Return the code in the first fence of an answer; without a fence, all of it."""
    blocks = blocks_of(answer)
    return blocks[0].text.strip("\n") if blocks else answer.strip()


def _glimpse(text: str) -> str:
    line = " ".join(text[:GLIMPSE].split())
    return f"{line} …" if len(text) > GLIMPSE else line
