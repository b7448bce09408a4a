"""Make what the attempts of one run act with: tools, an interpreter, other models, and the run's notes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.pool.pool import BATCH_SLACK
from orchestrator.registry.models import Registry
from orchestrator.run.clock import Clock
from orchestrator.run.gates import RunnerFor
from orchestrator.run.journal.home import Home
from orchestrator.run.routing import Decision
from orchestrator.run.steps.attempt import Attempt, StepRunner
from orchestrator.run.steps.generate import GenerateRunner
from orchestrator.run.steps.repl.attempt import ReplRunner
from orchestrator.run.steps.repl.session import Open
from orchestrator.run.steps.repl.subcalls import GenerateBatch, NoSuchRole, SubcallModels
from orchestrator.run.steps.role import ResolvedRole, resolve_role, with_options
from orchestrator.run.steps.tools.attempt import ServedRunner, ToolRunner
from orchestrator.run.steps.tools.contract import Tool, ToolContext, no_procedures
from orchestrator.run.steps.tools.notes import Notes, RunNotes
from orchestrator.run.steps.tools.servers import ToolServers, is_served
from orchestrator.run.steps.tools.toolbox import Call, OnCall, Toolbox
from orchestrator.run.steps.tools.workspace import Workspace
from orchestrator.task.events import (
    Event,
    NoteChange,
    NoteChanged,
    Priority,
    RunAccepted,
    ToolCalled,
)

Emit = Callable[[Event], None]
# `Propose` for the run with this id.
RunProposes = Callable[[str, str, Mapping[str, Any]], Awaitable[str]]


async def no_procedures_of_runs(_run: str, name: str, inputs: Mapping[str, Any]) -> str:
    """Default for `RunProposes`: raise `ToolError`, as there are no procedures."""
    return await no_procedures(name, inputs)


@dataclass(frozen=True, slots=True)
class ToolDependencies:
    """What tools and interpreters need that is not part of a run."""

    registry: Registry
    home: Home
    clock: Clock
    tool_jobs: RunnerFor  # returns what runs the jobs of a step's tools in the sandbox
    sessions: Open  # opens sessions of interpreters in the sandbox
    batch: GenerateBatch
    servers: ToolServers
    propose: RunProposes = no_procedures_of_runs  # keeps the plans of procedures that runs propose


class AttemptContextFactory:
    """Makes what the attempts of one run act with. It holds the run's notes, folded from its events."""

    def __init__(self, accepted: RunAccepted) -> None:
        self._accepted = accepted
        self.notes = RunNotes()

    def runner(
        self, attempt: Attempt, number: int, decision: Decision, needs: ToolDependencies, emit: Emit
    ) -> StepRunner:
        """Return what carries out an attempt. A step that generates may have tools, too."""

        def runner(served: Mapping[str, Tool]) -> StepRunner:
            if attempt.step.kind == "repl":
                return self._repl(attempt, number, decision, needs, emit, served)
            if attempt.step.kind == "tool" or attempt.step.tools:
                toolbox = self._toolbox(attempt, number, needs, emit, served)
                return ToolRunner(toolbox, needs.registry.models[attempt.role.model].context)
            return GenerateRunner()

        if any(map(is_served, attempt.step.tools)):
            return ServedRunner(needs.servers, runner)
        return runner({})

    def _repl(
        self,
        attempt: Attempt,
        number: int,
        decision: Decision,
        needs: ToolDependencies,
        emit: Emit,
        served: Mapping[str, Tool],
    ) -> ReplRunner:
        def resolve(role: str | None, persona: str | None) -> ResolvedRole:
            subcall = subcall_role(needs.registry, role or decision.role, persona, self._accepted.priority)
            return with_options(subcall, self._accepted.options)

        return ReplRunner(
            sessions=needs.sessions,
            toolbox=self._toolbox(attempt, number, needs, emit, served),
            subcalls=SubcallModels(resolve, needs.batch),
            on_call=self._journal_calls(attempt, number, needs, emit),
            folder=needs.home.artifacts(self._accepted.run).parent / "repl" / f"{attempt.step.id}-{number}",
            context=needs.registry.models[attempt.role.model].context,
        )

    def _toolbox(
        self, attempt: Attempt, number: int, needs: ToolDependencies, emit: Emit, served: Mapping[str, Tool]
    ) -> Toolbox:
        accepted, step = self._accepted, attempt.step
        directory = None if accepted.directory is None else Path(accepted.directory)
        files = [name for name in accepted.files if name not in accepted.prior]
        inputs = {item.name: item.text for item in attempt.inputs}
        workspace = Workspace(directory, files, inputs, step.outputs, attempt.seen)

        def journal(note: str, change: NoteChange, text: str) -> NoteChanged:
            event = NoteChanged(at=needs.clock.now(), step=step.id, number=number, note=note, change=change, text=text)
            emit(event)
            return event

        notes, propose = Notes(self.notes, step.id, journal), partial(needs.propose, accepted.run)
        run = needs.tool_jobs(job_slack(attempt.slack, accepted.priority))
        context = ToolContext(workspace, notes, run, propose, f"{accepted.run}/{step.id}")
        return Toolbox(step.tools, context, self._journal_calls(attempt, number, needs, emit), served)

    @staticmethod
    def _journal_calls(attempt: Attempt, number: int, needs: ToolDependencies, emit: Emit) -> OnCall:
        def journal_call(call: Call) -> None:
            emit(
                ToolCalled(
                    at=needs.clock.now(),
                    step=attempt.step.id,
                    number=number,
                    tool=call.tool,
                    arguments=call.arguments,
                    outcome=call.outcome,
                    message=call.message,
                    seconds=call.seconds,
                    work_seconds=call.work_seconds,
                    awaited_seconds=call.awaited_seconds,
                )
            )

        return journal_call


def job_slack(slack: float, priority: Priority) -> float:
    """Return the slack, in seconds, of jobs of a step with this slack."""
    # Nobody waits for a batch, so it has more, as in an engine.
    return slack + (BATCH_SLACK if priority == "batch" else 0.0)


def subcall_role(registry: Registry, role: str, persona: str | None, priority: Priority) -> ResolvedRole:
    """Return the role that a step's code asks for. Raises `NoSuchRole` unless steps may have that role."""
    roles = registry.step_roles
    if role not in roles:
        raise NoSuchRole(f"there is no role {role!r}; accepted: {_listed(roles)}")
    if persona is not None and persona not in registry.personas:
        raise NoSuchRole(f"there is no persona {persona!r}; accepted: {_listed(tuple(registry.personas))}")
    return resolve_role(registry, role, persona, priority=priority)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
