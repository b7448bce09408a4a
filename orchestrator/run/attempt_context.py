"""What one attempt acts with: tools, an interpreter, other models, and the run's notes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from orchestrator.pool.dispatch import BATCH_SLACK
from orchestrator.registry.models import Registry
from orchestrator.run.services import Services
from orchestrator.run.steps.attempt import Attempt, StepRunner
from orchestrator.run.steps.means import Means
from orchestrator.run.steps.repl.session import Open
from orchestrator.run.steps.repl.subcalls import NoSuchRole, SubcallModels
from orchestrator.run.steps.role import ResolvedRole, resolve_role, with_options
from orchestrator.run.steps.tools.attempt import ServedRunner
from orchestrator.run.steps.tools.contract import Tool, ToolContext
from orchestrator.run.steps.tools.notes import Notes, RunNotes
from orchestrator.run.steps.tools.servers import is_served
from orchestrator.run.steps.tools.toolbox import Call, Toolbox
from orchestrator.run.steps.tools.workspace import Workspace
from orchestrator.task.events import Event, NoteChange, NoteChanged, RunAccepted, ToolCalled
from orchestrator.task.modes import Priority
from orchestrator.task.taskir.models import KINDS, StepKind


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """The `Means` of one attempt."""

    attempt: Attempt
    number: int
    role: str  # that the router chose
    accepted: RunAccepted
    run_notes: RunNotes
    services: Services
    emit: Callable[[Event], None]
    served: Mapping[str, Tool] = field(default_factory=dict)  # of the MCP servers that are connected

    def runner(self) -> StepRunner:
        """Return what carries the attempt out."""
        runner_of = RUNNERS[self.attempt.step.kind]
        if any(map(is_served, self.attempt.step.tools)):
            return ServedRunner(self.services.servers, lambda served: runner_of(replace(self, served=served)))
        return runner_of(self)

    @property
    def context_tokens(self) -> int | None:
        """The tokens of one sequence of the attempt's model; None if unknown."""
        return self.services.registry.models[self.attempt.role.model].context

    @property
    def sessions(self) -> Open:
        return self.services.sessions

    @property
    def folder(self) -> Path:
        artifacts = self.services.journal.home.artifacts(self.accepted.run)
        return artifacts.parent / "repl" / f"{self.attempt.step.id}-{self.number}"

    def toolbox(self) -> Toolbox:
        accepted, step = self.accepted, self.attempt.step
        directory = None if accepted.directory is None else Path(accepted.directory)
        files = [name for name in accepted.files if name not in accepted.prior]
        inputs = {item.name: item.text for item in self.attempt.inputs}
        workspace = Workspace(directory, files, inputs, step.outputs, self.attempt.seen)
        notes = Notes(self.run_notes, step.id, self._journal_note)
        run = self.services.tool_jobs(job_slack(self.attempt.slack, accepted.priority))
        propose = partial(self.services.propose, accepted.run)
        context = ToolContext(workspace, notes, run, propose, f"{accepted.run}/{step.id}")
        return Toolbox(step.tools, context, self.journal_call, self.served)

    def subcalls(self) -> SubcallModels:
        """Return the models that the attempt's code may ask."""
        registry = self.services.registry  # the one in force when the attempt starts

        def resolve(role: str | None, persona: str | None) -> ResolvedRole:
            subcall = subcall_role(registry, role or self.role, persona, self.accepted.priority)
            return with_options(subcall, self.accepted.options)

        return SubcallModels(resolve, self.services.batch)

    def journal_call(self, call: Call) -> None:
        self.emit(
            ToolCalled(
                at=self.services.clock.now(),
                step=self.attempt.step.id,
                number=self.number,
                tool=call.tool,
                arguments=call.arguments,
                outcome=call.outcome,
                message=call.message,
                seconds=call.seconds,
                work_seconds=call.work_seconds,
                awaited_seconds=call.awaited_seconds,
            )
        )

    def _journal_note(self, note: str, change: NoteChange, text: str) -> NoteChanged:
        at, step = self.services.clock.now(), self.attempt.step.id
        event = NoteChanged(at=at, step=step, number=self.number, note=note, change=change, text=text)
        self.emit(event)
        return event


RUNNERS: Final[Mapping[StepKind, Callable[[Means], StepRunner]]] = {
    kind: resolve_name(f"orchestrator.run.steps.{row.runner}") for kind, row in KINDS.items()
}


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
