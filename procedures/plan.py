"""Plan a procedure: its steps in order, with their values, the exact changes and a digest. Changes nothing.

If a step depends on what an earlier one returns only when it runs, the plan says so and shows its templates.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator.procedures.changes import (
    FileChange,
    Files,
    absolute,
    digest_after,
    file_change,
    registry_change,
    show_change,
)
from orchestrator.procedures.durable import file_digest
from orchestrator.procedures.errors import ProcedureInvalid, StepFailed
from orchestrator.procedures.expressions import ExpressionError, NotKnownYet, Pending, evaluate, render_all
from orchestrator.procedures.forms import ActionForm, CheckpointForm, Procedure, StepForm, check_value, kind_of
from orchestrator.procedures.ports import Operation, ProcedurePorts, planning_work
from orchestrator.procedures.resources import DatabaseResource, PathResource, Resource, RowsResource
from orchestrator.registry.errors import RegistryProblem, nearest
from orchestrator.registry.forms import Form

Names = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    id: str
    kind: str
    description: str
    runs: str  # `yes`, `no` if its condition is false, or why that is known only later
    action: Any  # JSON; values of its templates if they are known
    changes: tuple[str, ...]  # resources by name
    shown: str  # a diff, or what can be said of the changes
    after: Mapping[str, str]  # of files that the engine writes: digest of the new content, by path
    before: Mapping[str, str]  # of the same files: digest of the content when the plan was made
    undo: str  # how a rollback undoes it


@dataclass(frozen=True, slots=True)
class ProcedurePlan:
    procedure: str
    version: str
    description: str
    definition: str  # the procedure's file
    path: str
    inputs: Mapping[str, Any]  # secrets by reference
    steps: tuple[PlannedStep, ...]
    needs_approval: bool
    destructive: bool
    roles: tuple[str, ...]
    # why steps would fail, as far as is known; such a plan is not executed
    problems: tuple[str, ...] = field(default=())

    @property
    def digest(self) -> str:
        """The SHA-256 of the whole plan: what an approval is for."""
        return hashlib.sha256(json.dumps(plan_to_json(self), sort_keys=True).encode()).hexdigest()


def plan_to_json(plan: ProcedurePlan) -> dict[str, Any]:
    """Return the plan as JSON, without its digest."""
    fields = {name: getattr(plan, name) for name in ProcedurePlan.__slots__}
    steps = [{name: getattr(step, name) for name in PlannedStep.__slots__} for step in plan.steps]
    return json.loads(json.dumps({**fields, "steps": steps}, default=_plain))  # type: ignore[no-any-return]


def plan_from_json(data: Mapping[str, Any]) -> ProcedurePlan:
    steps = tuple(PlannedStep(**{**step, "changes": tuple(step["changes"])}) for step in data["steps"])
    tuples = {name: tuple(data[name]) for name in ("roles", "problems")}
    return ProcedurePlan(**{**data, **tuples, "steps": steps})


def make_plan(procedure: Procedure, inputs: Mapping[str, Any], ports: ProcedurePorts) -> ProcedurePlan:
    """Return the plan of a procedure with these inputs. Raises ProcedureInvalid for inputs that cannot be used."""
    values = check_inputs(procedure, inputs)
    files, problems, steps = Files(), list[str](), list[PlannedStep]()
    outputs: dict[str, object] = {}
    names: dict[str, object] = {"inputs": values, "places": dict(ports.places), "steps": outputs}
    for identity in procedure.order:
        step = procedure.steps[identity]
        outputs[identity] = Pending(identity)
        try:
            planned, step_outputs = _Planner(step, names, files, ports).planned()
            steps.append(planned)
            if step_outputs is not None:
                outputs[identity] = step_outputs
        except (StepFailed, ExpressionError) as error:
            problems.append(f"{identity}: {error}")
            steps.append(_bare(step, f"would fail: {error}"))
    form = procedure.form
    return ProcedurePlan(
        procedure=procedure.id,
        version=form.version,
        description=form.description,
        definition=procedure.text.decode(),
        path=str(procedure.path),
        inputs=values,
        steps=tuple(steps),
        needs_approval=form.permissions.requires_approval or form.permissions.destructive,
        destructive=form.permissions.destructive,
        roles=form.permissions.roles,
        problems=tuple(problems),
    )


def check_inputs(procedure: Procedure, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all inputs, with defaults, converted if they are text. Raises ProcedureInvalid."""
    form, problems, values = procedure.form, list[RegistryProblem](), dict[str, Any]()
    for name in inputs:
        if name not in form.inputs:
            problems.append(_input_problem(procedure, name, "there is no such input", nearest(name, form.inputs)))
    for name, entry in form.inputs.items():
        value = inputs.get(name, entry.default)
        if value is None:
            if not entry.optional:
                problems.append(_input_problem(procedure, name, f"is required: {entry.description}", ""))
            values[name] = None
            continue
        try:
            values[name] = check_value(name, entry, value)
            if entry.type == "path":
                values[name] = str(absolute(value))
        except (ValueError, StepFailed) as error:
            problems.append(_input_problem(procedure, name, str(error), ""))
    if problems:
        raise ProcedureInvalid(*problems)
    return values


def resources_of(form: CheckpointForm | None, names: Names) -> list[Resource]:
    """Return what a checkpoint names. Raises StepFailed, ExpressionError, NotKnownYet."""
    if form is None:
        return []
    return [
        *(PathResource(absolute(render_all(path, names))) for path in form.paths),
        *(
            RowsResource(absolute(render_all(row_form.database, names)), row_form.table, row_form.where)
            for row_form in form.rows
        ),
        *(DatabaseResource(absolute(render_all(path, names))) for path in form.databases),
    ]


def render_action(action: ActionForm, names: Names) -> Any:
    """Return an action as JSON with rendered templates. Raises as `render_all` does."""
    return render_all(getattr(action, kind_of(action)).model_dump(), names)


def own_change(kind: str, action: Mapping[str, Any], ports: ProcedurePorts, files: Files) -> FileChange | None:
    """Return the file change that the engine itself makes for an action, or None. Raises StepFailed."""
    match kind:
        case "registry_update":
            return registry_change(action, ports.registry, files)
        case "file_write":
            return file_change(action, files)
        case _:
            return None


def own_outputs(kind: str, change: FileChange) -> dict[str, Any]:
    return {"path": str(change.path), "digest": digest_after(change)}


def operation_of(kind: str, action: Mapping[str, Any], ports: ProcedurePorts) -> tuple[Operation[Any], Any] | None:
    """Return the operation that an action calls, with its checked arguments, or None. Raises StepFailed."""
    match kind:
        case "call":
            name, arguments = action["operation"], action["arguments"]
        case "memory":
            name, arguments = f"memory.{action['operation']}", action["arguments"]
        case "taskir" | "gate" | "benchmark":
            name, arguments = kind, {key: value for key, value in action.items() if value is not None}
        case _:
            return None
    if name not in ports.operations:
        raise StepFailed(f"there is no operation {name!r} here; accepted: {nearest(name, ports.operations)}")
    operation = ports.operations[name]
    try:
        return operation, operation.form.model_validate_json(json.dumps(arguments))
    except ValidationError as error:
        raise StepFailed(f"{name}: {'; '.join(_arguments(operation.form, error))}") from error


class _Planner:
    def __init__(self, step: StepForm, names: Names, files: Files, ports: ProcedurePorts) -> None:
        self._step, self._names, self._files, self._ports = step, names, files, ports
        self._kind = kind_of(step)

    def planned(self) -> tuple[PlannedStep, dict[str, Any] | None]:
        # also returns the step's outputs if they are known already
        runs = "yes"
        try:
            if self._step.when is not None and not evaluate(self._step.when, self._names):
                return _bare(self._step, "is skipped: its condition is false", "no"), {"state": "skipped"}
        except NotKnownYet as later:
            runs = str(later)
        try:
            action = render_action(self._step, self._names)
            resources = resources_of(self._step.changes, self._names)
        except NotKnownYet as later:
            return _bare(self._step, str(later), runs), None
        return self._rendered(action, resources, runs)

    def _rendered(self, action: Any, resources: list[Resource], runs: str) -> tuple[PlannedStep, dict[str, Any] | None]:
        outputs: dict[str, Any] | None = None
        shown, before, after = list[str](), dict[str, str](), dict[str, str]()
        irreversible = self._step.irreversible or ""
        change = own_change(self._kind, action, self._ports, self._files)
        if change is not None:
            resources = [PathResource(change.path), *resources]
            shown.append(show_change(change, self._files))
            before, after = self._digests(change)
            self._files.planned[change.path] = change.after
            outputs = own_outputs(self._kind, change)
        called = operation_of(self._kind, action, self._ports)
        if called is not None:
            operation, arguments = called
            resources = [*operation.changes(arguments), *resources]
            irreversible = irreversible or operation.irreversible
            if operation.leaves and self._step.compensation is None and not irreversible:
                defect = f"{operation.name} makes {operation.leaves}, which nothing would undo"
                raise StepFailed(f"{defect}; accepted: compensation, or irreversible in a destructive procedure")
            if text := operation.preview(arguments):
                shown.append(text)
            if operation.reads_only and not self._files.planned:  # else it would read what is not changed yet
                outputs = dict(operation.run(arguments, planning_work()))
        if self._kind == "checkpoint":
            resources = resources_of(self._step.checkpoint, self._names)
        planned = PlannedStep(
            id=self._step.id,
            kind=self._kind,
            description=self._step.description or "",
            runs=runs,
            action=_hidden(self._kind, action),
            changes=tuple(map(str, resources)),
            shown="\n".join(shown),
            before=before,
            after=after,
            undo=_undo(self._step, resources, irreversible),
        )
        return planned, None if outputs is None or runs != "yes" else {"state": "done", **outputs}

    def _digests(self, change: FileChange) -> tuple[dict[str, str], dict[str, str]]:
        # empty if the content is secret
        if change.secret:
            return {}, {}
        path = str(change.path)
        return {path: content_digest(change.path, self._files)}, {path: digest_after(change)}


def content_digest(path: Path, files: Files) -> str:
    """Return the SHA-256 of a file's content, `absent`, or the source of an earlier step's copy. Raises StepFailed."""
    if path in files.planned:
        planned = files.planned[path]
        if isinstance(planned, Path):
            return f"copy of {planned}"
        return "absent" if planned is None else hashlib.sha256(planned).hexdigest()
    try:
        return file_digest(path)
    except OSError as error:
        raise StepFailed(f"{path}: {error.strerror}") from error


def _hidden(kind: str, action: Any) -> Any:
    # without the content of a secret file
    if kind == "file_write" and action.get("secret") and action.get("content") is not None:
        return {**action, "content": "(secret)"}
    return action


def _undo(step: StepForm, resources: list[Resource] | None, irreversible: str) -> str:
    # `resources` is None if they are not known yet
    ways = []
    if resources is None:
        ways.append("what it changes, if anything, is put back")
    elif resources:
        ways.append("what it changes is put back")
    if step.compensation is not None:
        ways.append(f"{kind_of(step.compensation)} compensates it")
    if irreversible:
        ways.append(f"it cannot be undone: {irreversible}")
    return "; ".join(ways) or "it changes nothing"


def _bare(step: StepForm, why: str, runs: str = "yes") -> PlannedStep:
    kind = kind_of(step)
    return PlannedStep(
        id=step.id,
        kind=kind,
        description=step.description or "",
        runs=runs,
        action=_hidden(kind, json.loads(getattr(step, kind).model_dump_json())),
        changes=(),
        shown=why,
        before={},
        after={},
        undo="it changes nothing" if runs == "no" else _undo(step, None, step.irreversible or ""),
    )


def _arguments(form: type[Form], error: ValidationError) -> Iterator[str]:
    for detail in error.errors(include_url=False):
        place = ".".join(map(str, detail["loc"])) or "its arguments"
        if detail["type"] == "extra_forbidden":
            yield f"there is no argument {place}; accepted: {nearest(str(detail['loc'][-1]), form.model_fields)}"
        elif detail["type"] == "missing":
            yield f"the argument {place} is required"
        else:
            yield f"{place}: {detail['msg']}"


def _input_problem(procedure: Procedure, name: str, reason: str, accepted: str) -> RegistryProblem:
    return RegistryProblem(procedure.path, None, f"inputs.{name}", reason, accepted)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else str(value)
