"""Fold the entries of the audit log into executions: how far each is, what it has changed and what was undone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from orchestrator.procedures.audit import Entry
from orchestrator.procedures.resources import Resource, resource_from_json

# queued: waits for its turn in a daemon. failed: stopped, and what was done stays done. rollback failed: something
# could not be put back. missed: a schedule was due, and nothing was executed.
State = Literal[
    "planned",
    "approved",
    "queued",
    "running",
    "rolling back",
    "done",
    "failed",
    "rolled back",
    "rollback failed",
    "withdrawn",
    "missed",
]
_CHANGES_NOTHING: Final = frozenset({"checkpoint", "wait", "gate", "benchmark"})  # step kinds with nothing to undo
_OVER: Final = frozenset({"done", "failed", "rolled back", "rollback failed", "withdrawn", "missed"})


@dataclass(slots=True)
class StepState:
    state: Literal["begun", "acting", "done", "failed", "skipped", "undoing", "undone", "not undone"]
    attempt: int = 0
    number: int = 0  # place among the steps that have acted, in that order
    action: Any = None
    checkpoint: str = ""  # folder of the checkpoint that was made before it acted; empty if it changes nothing
    digest: str = ""  # of that checkpoint's manifest
    resources: tuple[Resource, ...] = ()
    # fingerprints of the resources when the step was done, by description
    after: Mapping[str, str] = field(default_factory=dict)
    # at the end of the execution: of resources that later steps may have changed too
    at_end: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    changed_nothing: bool = False  # was undone, and there was nothing to put back, compensate or stop


@dataclass(slots=True)
class Execution:
    id: str
    procedure: str = ""
    version: str = ""
    plan: str = ""  # its digest
    caller: str = ""
    owner: str = ""  # key of that caller; empty for executions of early versions
    roles: tuple[str, ...] = ()
    planned: float = 0.0
    ended: float | None = None
    state: State = "planned"
    approved_by: str = ""
    queued_by: tuple[str, frozenset[str]] = ("", frozenset())  # who queued it, and that caller's roles
    steps: dict[str, StepState] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    look_at: tuple[str, ...] = ()  # for a person
    # what others had changed before it was put back, and where a copy of that is
    displaced: list[str] = field(default_factory=list)
    interruptions: int = 0
    force: bool = False  # the rollback that is under way also puts back what others have changed since
    changed_since: tuple[str, ...] = ()  # what others had changed between the end and that rollback

    @property
    def is_over(self) -> bool:
        """Whether it has ended; a rollback may still be requested."""
        return self.state in _OVER

    @property
    def undone(self) -> list[str]:
        """What was put back or compensated, by step; includes what failed steps had changed."""
        return [
            f"step {name}: {_effect(step)}"
            for name, step in self.steps.items()
            if (step.state == "undone" and not step.changed_nothing and not _CHANGES_NOTHING & set(step.action or ()))
            or (step.state == "failed" and step.resources)
        ]

    @property
    def changed(self) -> list[str]:
        """What is changed now, by step: by steps that are done, and by those that could not be undone."""
        return [
            f"step {name}: {_effect(step)}"
            for name, step in self.steps.items()
            if step.state == "not undone" or (step.state == "done" and step.resources)
        ]

    def acted(self) -> list[tuple[str, StepState]]:
        """Return the steps that acted and were not put back, the last one first."""
        states = ("acting", "done", "undoing", "not undone")
        steps = [(name, step) for name, step in self.steps.items() if step.state in states and step.number]
        return sorted(steps, key=lambda item: -item[1].number)

    def to_json(self) -> dict[str, Any]:
        """Return the execution as JSON for the CLI and the API."""
        return {
            "id": self.id,
            "procedure": self.procedure,
            "version": self.version,
            "plan": self.plan,
            "caller": self.caller,
            "planned": self.planned,
            "ended": self.ended,
            "state": self.state,
            "approved_by": self.approved_by,
            "steps": [
                {
                    "id": name,
                    "state": step.state,
                    "attempt": step.attempt,
                    "changed": [str(resource) for resource in step.resources],
                    "outputs": dict(step.outputs),
                    "error": step.error,
                }
                for name, step in self.steps.items()
            ],
            "outputs": dict(self.outputs),
            "error": self.error,
            "changed": self.changed,
            "undone": self.undone,
            "look_at": list(self.look_at),
            "interruptions": self.interruptions,
        }


def _effect(step: StepState) -> str:
    # what it changed, or else what it did
    if step.resources:
        return ", ".join(map(str, step.resources))
    kind, arguments = next(iter((step.action or {}).items()), ("nothing", None))
    operation = arguments.get("operation") if isinstance(arguments, Mapping) else None
    return f"{kind} {operation}" if operation else str(kind)


def execution_of(identity: str, entries: Iterable[Entry]) -> Execution:
    execution = Execution(identity)
    for entry in entries:
        apply(execution, entry)
    return execution


def apply(execution: Execution, entry: Entry) -> None:
    data = entry.data
    match entry.kind:
        case "planned" | "approved" | "queued" | "missed" | "withdrawn":
            _apply_before(execution, entry)
        case "begun":
            execution.state, execution.ended = "running", None
        case "displaced":
            changed = ", ".join(data["what"])
            execution.displaced.append(f"{changed} had been changed by others, and a copy of that is in {data['kept']}")
        case "interrupted":
            execution.interruptions += 1
        case "rolling_back":
            execution.state, execution.error, execution.ended = "rolling back", data["why"], None
            execution.force, execution.changed_since = data["force"], tuple(data.get("changed_since", ()))
        case "ended":
            execution.state, execution.ended = data["state"], entry.at
            execution.outputs, execution.error = data["outputs"], data["error"]
            execution.look_at = tuple(data["look_at"])
            for name, prints in data.get("at_end", {}).items():
                execution.steps[name].at_end = prints
        case _ if "step" in data:
            _apply_step(execution, entry.kind, data)


def _apply_before(execution: Execution, entry: Entry) -> None:
    data = entry.data
    match entry.kind:
        case "planned":
            execution.procedure, execution.version = data["procedure"], data["version"]
            execution.plan, execution.caller = data["plan"], data["caller"]
            execution.roles, execution.planned = tuple(data["roles"]), entry.at
            execution.owner = data.get("owner", "")
        case "approved":
            execution.state, execution.approved_by = "approved", data["caller"]
        case "queued":
            execution.state, execution.queued_by = "queued", (data["caller"], frozenset(data["roles"]))
        case "missed":
            execution.procedure, execution.caller = data["procedure"], data["schedule"]
            execution.state, execution.error = "missed", data["why"]
            execution.planned = execution.ended = entry.at
        case "withdrawn":
            execution.state, execution.error, execution.ended = "withdrawn", data["why"], entry.at


def _apply_step(execution: Execution, kind: str, data: Mapping[str, Any]) -> None:
    step = execution.steps.setdefault(data["step"], StepState("begun"))
    match kind:
        case "step_begun":
            step.state, step.attempt, step.error = "begun", data["attempt"], ""
        case "acting":
            step.state, step.action = "acting", data["action"]
            step.number = 1 + max(earlier.number for earlier in execution.steps.values())
            step.checkpoint, step.digest = data["checkpoint"], data["digest"]
            step.resources = tuple(map(resource_from_json, data["resources"]))
        case "step_done":
            step.state, step.outputs, step.after = "done", data["outputs"], data["after"]
        case "step_skipped":
            step.state = "skipped"
        case "step_failed":
            step.state, step.error = ("failed" if data["restored"] else "not undone"), data["error"]
        case "undoing":
            step.state = "undoing"
        case "undone":
            step.state, step.changed_nothing = "undone", data.get("changed_nothing", False)
        case "not_undone":
            step.state, step.error = "not undone", data["error"]
