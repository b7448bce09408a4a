"""Define what a procedure's YAML file may say, and read it.

The forms check types and unknown keys. `read_procedure` checks across keys: step ids, the DAG, and that expressions can
be parsed and name only inputs and earlier steps.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from orchestrator.procedures.errors import ProcedureInvalid
from orchestrator.procedures.expressions import ExpressionError, names_in, names_in_template
from orchestrator.registry.errors import RegistryError, RegistryProblem, nearest
from orchestrator.registry.forms import Form, Name, read_form
from orchestrator.registry.strict_yaml import KeyPath, YamlDocument, parse_text, read_file

# What templates call the paths of this installation: state folder, registry file, folder of downloaded models,
# configuration file.
PLACES: Final = ("home", "registry", "models", "configuration")
MAX_STEPS: Final = 1000
MAX_RETRIES: Final = 20
MAX_ATTEMPTS: Final = MAX_RETRIES + 2  # the first attempt, the retries, and the one of `on_failure: retry`
MAX_SECONDS: Final = 7 * 86_400.0
VERSION: Final = r"^(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})$"
STEP_ID: Final = r"^[a-z][a-z0-9_]{0,63}$"

RESERVED: Final = ("audit", "executions")  # names in the API next to those of procedures


def _version(value: object) -> object:
    # YAML reads `1.0` as a number
    if isinstance(value, str) and re.fullmatch(VERSION, value):
        return value
    raise PydanticCustomError("version", "three numbers with dots between them, such as 1.0.0")


Id = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
StepId = Annotated[str, StringConstraints(pattern=STEP_ID)]
InputName = Annotated[str, StringConstraints(pattern=STEP_ID)]
Version = Annotated[str, BeforeValidator(_version), StringConstraints(pattern=VERSION)]
Line = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Template = Annotated[str, StringConstraints(max_length=100_000)]
Expression = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
Type = Literal["string", "integer", "number", "boolean", "list", "path", "secret"]
OutputType = Literal["string", "integer", "number", "boolean", "list", "path", "object"]
OnFailure = Literal["abort", "continue", "retry", "rollback"]
Json = Any  # a JSON value whose strings are templates


class PermissionsForm(Form):
    """Who may run a procedure, and after whose approval."""

    # Callers with one of these may run it. owner: the user of the state folder; operator: has the API's token;
    # schedule: the daemon's own schedule; model: a model's plan.
    roles: Annotated[tuple[Name, ...], Field(min_length=1, max_length=20)] = ("owner",)
    requires_approval: bool = True  # of the plan by a person, before anything is changed
    destructive: bool = False  # removes what cannot be restored; always needs a person's approval


class InputForm(Form):
    """One input of a procedure."""

    type: Type = "string"  # `secret` takes `env:NAME` or `file:PATH`, and only that is logged
    description: Line
    default: Json = None  # an input without a default is required, unless `optional`
    optional: bool = False  # without a default, a missing input is null
    choices: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    # a regular expression for the whole string
    pattern: Annotated[str, StringConstraints(max_length=500)] | None = None
    minimum: float | None = None
    maximum: float | None = None


class OutputForm(Form):
    """One output of a procedure."""

    value: Template  # evaluated when all steps have ended
    type: OutputType | None = None  # checked at the end; None: any JSON
    optional: bool = False  # may be null
    description: Line


class ModelChangeForm(Form):
    """Keys of a model's entry that get other values; null removes a key."""

    id: Template
    values: dict[str, Json] | Template  # keys and values, or a template that has them


class RoleChangeForm(Form):
    """Keys of a role's entry that get other values; null removes a key."""

    role: Template
    values: dict[str, Json] | Template  # keys and values, or a template that has them


class NewModelForm(Form):
    """A new entry of a model."""

    id: Template
    entry: dict[str, Json] | Template  # keys and values, or a template that has them


class GivenRoleForm(Form):
    """A role that another model gets."""

    role: Template
    model: Template
    tier: Template = "C"


class RegistryUpdateForm(Form):
    """Changes of the registry's file. The file then has to load, or nothing is written. They apply in this order."""

    add_model: NewModelForm | None = None
    set_model: ModelChangeForm | None = None
    give_role: GivenRoleForm | None = None
    set_role: RoleChangeForm | None = None
    remove_model: Template | None = None


class FileWriteForm(Form):
    """A file that is written, copied or removed, at once and as a whole."""

    path: Template
    content: Template | None = None
    copy_of: Template | None = None  # a file to copy the bytes from
    remove: bool = False
    # octal digits; None: as before, and 644 for a new file
    mode: Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$")] | None = None
    secret: bool = False  # no diff shows the content


class ShellForm(Form):
    """A program, in the sandbox, or one that the configuration allows to be run outside of it."""

    # program and arguments; no shell reads them
    command: Annotated[tuple[Template, ...], Field(min_length=1, max_length=200)]
    sandbox: bool = True
    folder: Template | None = None  # the working directory, outside the sandbox
    # in the sandbox: files of its work folder, by paths of files here
    files: dict[str, Template] = Field(default_factory=dict)
    stdin: Template = ""
    expect: Annotated[tuple[int, ...], Field(min_length=1, max_length=20)] = (0,)  # the exit codes of success


class CallForm(Form):
    """An operation of the orchestrator; `orchestrator procedures operations` lists them with their arguments."""

    operation: Name
    arguments: dict[str, Json] = Field(default_factory=dict)


class MemoryForm(Form):
    """An operation on the memory of learned routing."""

    operation: Name
    arguments: dict[str, Json] = Field(default_factory=dict)


class TaskForm(Form):
    """A run: a request in words, or a TaskIR document."""

    request: Template | None = None
    task: dict[str, Json] | None = None
    folder: Template | None = None  # the run may read its files


class GateForm(Form):
    """Gates that are run on the files of a folder."""

    folder: Template
    gates: Annotated[tuple[Template, ...], Field(min_length=1, max_length=20)] | Template


class BenchmarkForm(Form):
    """A measurement of a model on this machine."""

    model: Template
    seconds: Json = 10.0


class RowsForm(Form):
    """Rows of a table of a SQLite database."""

    database: Template
    table: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
    # an SQL condition for the rows, not a template; empty for all
    where: Annotated[str, StringConstraints(max_length=2000)] = ""


class CheckpointForm(Form):
    """What is copied before the steps that follow, to be put back by a rollback."""

    paths: Annotated[tuple[Template, ...], Field(max_length=1000)] = ()
    rows: Annotated[tuple[RowsForm, ...], Field(max_length=100)] = ()
    databases: Annotated[tuple[Template, ...], Field(max_length=100)] = ()


class WaitForm(Form):
    """A pause."""

    seconds: Json


class ActionForm(Form):
    """What a step or a compensation does: exactly one of these."""

    registry_update: RegistryUpdateForm | None = None
    file_write: FileWriteForm | None = None
    shell: ShellForm | None = None
    call: CallForm | None = None
    taskir: TaskForm | None = None
    gate: GateForm | None = None
    checkpoint: CheckpointForm | None = None
    wait: WaitForm | None = None
    benchmark: BenchmarkForm | None = None
    memory: MemoryForm | None = None


KINDS: Final = tuple(ActionForm.model_fields)


class StepForm(ActionForm):
    """One step."""

    id: StepId
    description: Line | None = None
    depends_on: Annotated[tuple[StepId, ...], Field(max_length=MAX_STEPS)] = ()
    when: Expression | None = None  # if it is false, the step is skipped
    # in addition to what the engine knows; copied before, and put back by a rollback
    changes: CheckpointForm | None = None
    compensation: ActionForm | None = None  # undoes what copying cannot
    irreversible: Line | None = None  # why nothing can undo the step; only in destructive procedures
    timeout_seconds: Seconds | None = None
    retries: Annotated[int, Field(ge=0, le=MAX_RETRIES)] = 0
    # after the final failure; None: as the procedure says. retry: once more, then as the procedure says.
    on_failure: OnFailure | None = None


class CheckForm(Form):
    """A condition that has to be true when all steps have ended."""

    that: Expression
    otherwise: Line  # the error message


class ProcedureForm(Form):
    """The whole file of a procedure."""

    id: Id
    version: Version
    category: Name
    description: Annotated[str, StringConstraints(min_length=1, max_length=4000)]
    permissions: PermissionsForm = PermissionsForm()
    inputs: Annotated[dict[InputName, InputForm], Field(max_length=100)] = Field(default_factory=dict)
    outputs: Annotated[dict[InputName, OutputForm], Field(max_length=100)] = Field(default_factory=dict)
    steps: Annotated[tuple[StepForm, ...], Field(min_length=1, max_length=MAX_STEPS)]
    verification: Annotated[tuple[CheckForm, ...], Field(max_length=100)] = ()
    # when a step or the verification has failed: stop, or undo all
    on_failure: Literal["abort", "rollback"] = "rollback"
    on_interruption: Literal["resume", "rollback"] = "rollback"  # after the process was killed: continue, or undo all
    timeout_seconds: Seconds = 3600.0


class Procedure:
    """A procedure that was read and checked. The digest of `text`, the file's content, identifies it."""

    def __init__(self, form: ProcedureForm, text: bytes, document: YamlDocument, order: tuple[str, ...]) -> None:
        self.form = form
        self.text = text
        self.path = document.path
        self.problem = document.problem  # makes a problem at a place of the file, with its line
        self.order = order  # ids of the steps in execution order
        self.steps: Mapping[str, StepForm] = {step.id: step for step in form.steps}

    @property
    def id(self) -> str:
        return self.form.id


def read_procedure(path: Path) -> Procedure:
    """Read the file of a procedure. Raises ProcedureInvalid with every problem, each at its line."""
    try:
        return _read_once(read_file(path), path)
    except RegistryError as error:
        raise ProcedureInvalid(*error.problems) from error


def procedure_from(text: bytes, path: Path) -> Procedure:
    """Read a procedure from bytes; `path` is for errors. Raises ProcedureInvalid."""
    try:
        return _read_once(text, path)
    except RegistryError as error:
        raise ProcedureInvalid(*error.problems) from error


def procedure_schema() -> dict[str, Any]:
    schema = ProcedureForm.model_json_schema()
    for name in ("ActionForm", "StepForm"):
        schema["$defs"][name]["oneOf"] = [{"required": [kind]} for kind in KINDS]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Procedure"}


def kind_of(action: ActionForm) -> str:
    """Return which of KINDS a checked action is."""
    return next(kind for kind in KINDS if getattr(action, kind) is not None)


def templates_in(value: object, place: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield every string in a form or JSON value, with its place."""
    if isinstance(value, Form):
        value = {name: getattr(value, name) for name in type(value).model_fields if name != "where"}
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from templates_in(item, (*place, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from templates_in(item, (*place, index))


@lru_cache(maxsize=64)
def _read_once(text: bytes, path: Path) -> Procedure:
    # cached: lists, requests in words and each step of an execution ask for the same procedure
    return _checked(parse_text(text, path), text)


def _checked(document: YamlDocument, text: bytes) -> Procedure:
    form = read_form(ProcedureForm, document)
    problems = [*_actions(form, document), *_inputs(form, document)]
    if form.id in RESERVED:
        problems.append(document.problem(("id",), f"{form.id} is a name of the API", "another name"))
    order, order_problems = _order(form, document)
    problems += order_problems
    if not order_problems:
        problems += _expressions(form, order, document)
    if problems:
        raise RegistryError(*problems)
    return Procedure(form, text, document, order)


def _actions(form: ProcedureForm, document: YamlDocument) -> Iterator[RegistryProblem]:
    for index, step in enumerate(form.steps):
        place: KeyPath = ("steps", index)
        yield from _one_action(step, place, document)
        if step.compensation is not None:
            yield from _one_action(step.compensation, (*place, "compensation"), document)
        if step.irreversible is not None and not form.permissions.destructive:
            reason = "a step that cannot be undone is in a procedure that is not destructive"
            yield document.problem((*place, "irreversible"), reason, "permissions: {destructive: true}")
        kinds = [kind for kind in KINDS if getattr(step, kind) is not None]
        undone = step.changes or step.compensation or step.irreversible
        if kinds == ["shell"] and step.shell is not None and not step.shell.sandbox and not undone:
            reason = "nothing says how a program outside the sandbox is undone"
            yield document.problem((*place, "shell"), reason, "changes, compensation or irreversible")


def _one_action(action: ActionForm, place: KeyPath, document: YamlDocument) -> Iterator[RegistryProblem]:
    kinds = [kind for kind in KINDS if getattr(action, kind) is not None]
    if len(kinds) != 1:
        reason = f"has {' and '.join(kinds)}" if kinds else "does nothing"
        yield document.problem(place, reason, f"one of {', '.join(KINDS)}")
    if (write := action.file_write) is not None:
        sources = [name for name in ("content", "copy_of", "remove") if getattr(write, name) not in (None, False)]
        if len(sources) != 1:
            reason = f"has {' and '.join(sources)}" if sources else "writes nothing"
            yield document.problem((*place, "file_write"), reason, "one of content, copy_of and remove")
    if (update := action.registry_update) is not None and not any(
        getattr(update, name) is not None for name in RegistryUpdateForm.model_fields
    ):
        accepted = ", ".join(RegistryUpdateForm.model_fields)
        yield document.problem((*place, "registry_update"), "changes nothing", accepted)
    if (task := action.taskir) is not None and (task.request is None) == (task.task is None):
        yield document.problem((*place, "taskir"), "needs a request or a task", "one of the two")


def _inputs(form: ProcedureForm, document: YamlDocument) -> Iterator[RegistryProblem]:
    for name, entry in form.inputs.items():
        place: KeyPath = ("inputs", name)
        if entry.pattern is not None:
            try:
                re.compile(entry.pattern)
            except re.error as error:
                yield document.problem((*place, "pattern"), f"is no regular expression: {error}")
        if entry.type == "secret" and entry.default is not None:
            yield document.problem((*place, "default"), "a secret has a default", "no default")
        if entry.default is not None:
            try:
                check_value(name, entry, entry.default)
            except ValueError as error:
                yield document.problem((*place, "default"), str(error))


def _order(form: ProcedureForm, document: YamlDocument) -> tuple[tuple[str, ...], list[RegistryProblem]]:
    # ties in the order of the file; also returns what prevents an order
    places = {step.id: index for index, step in reversed(list(enumerate(form.steps)))}
    problems = [
        document.problem(("steps", index, "id"), f"{step.id} is the id of step {places[step.id] + 1} too", "each once")
        for index, step in enumerate(form.steps)
        if places[step.id] != index
    ]
    problems += [
        document.problem(
            ("steps", index, "depends_on", position), f"no step is called {dependency}", nearest(dependency, places)
        )
        for index, step in enumerate(form.steps)
        for position, dependency in enumerate(step.depends_on)
        if dependency not in places
    ]
    if problems:
        return (), problems
    sorter, cycles = _sorter({step.id: step.depends_on for step in form.steps})
    for cycle in cycles:
        start = cycle.index(min(cycle, key=places.__getitem__))
        ring = (*cycle[start:], *cycle[: start + 1])
        reason = f"these steps wait for each other: {' → '.join(ring)}"
        problems.append(document.problem(("steps", places[ring[0]], "depends_on"), reason, "steps without a cycle"))
    ready: list[int] = []
    order: list[str] = []
    while sorter.is_active():
        for identity in sorter.get_ready():
            heappush(ready, places[identity])
        order.append(form.steps[heappop(ready)].id)
        sorter.done(order[-1])
    return tuple(order), problems


def _sorter(before: dict[str, Sequence[str]]) -> tuple[TopologicalSorter[str], list[list[str]]]:
    # prepared; also returns the cycles, whose steps then wait for nothing
    cycles: list[list[str]] = []
    while True:
        sorter = TopologicalSorter(before)
        try:
            sorter.prepare()
        except CycleError as error:
            cycles.append(error.args[1][:-1])  # the first step is the last one, too
            before |= dict.fromkeys(cycles[-1], ())
        else:
            return sorter, cycles


def _expressions(form: ProcedureForm, order: Sequence[str], document: YamlDocument) -> Iterator[RegistryProblem]:
    by_id = {step.id: step for step in form.steps}
    earlier: dict[str, set[str]] = {}
    for identity in order:
        waits_for = by_id[identity].depends_on
        earlier[identity] = set(waits_for).union(*(earlier[dependency] for dependency in waits_for))
    for index, step in enumerate(form.steps):
        place: KeyPath = ("steps", index)
        before = earlier[step.id]
        for at, text in _step_texts(step):
            visible = before | {step.id} if at[0] == "compensation" else before
            yield from _names(text, (*place, *at), at == ("when",), form, visible, document)
    for name, output in form.outputs.items():
        yield from _names(output.value, ("outputs", name, "value"), False, form, set(by_id), document)
    for index, check in enumerate(form.verification):
        yield from _names(check.that, ("verification", index, "that"), True, form, set(by_id), document)


def _step_texts(step: StepForm) -> Iterator[tuple[KeyPath, str]]:
    if step.when is not None:
        yield ("when",), step.when
    for name in (*KINDS, "changes", "compensation"):
        yield from templates_in(getattr(step, name), (name,))


def _names(
    text: str, place: KeyPath, bare: bool, form: ProcedureForm, steps: set[str], document: YamlDocument
) -> Iterator[RegistryProblem]:
    try:
        names = names_in(text) if bare else names_in_template(text)
    except ExpressionError as error:
        yield document.problem(place, str(error))
        return
    for root, name in names:
        if root == "inputs" and name not in form.inputs:
            yield document.problem(place, f"there is no input {name!r}", nearest(name, form.inputs))
        if root == "places" and name not in PLACES:
            yield document.problem(place, f"there is no place {name!r}", nearest(name, PLACES))
        if root == "steps" and name not in steps:
            step_ids = {step.id for step in form.steps}
            reason = "is not among the steps that this one depends on" if name in step_ids else "is no step"
            yield document.problem(place, f"{name!r} {reason}", nearest(name, steps) if steps else "depends_on: a step")


def check_value(name: str, entry: InputForm, value: object) -> object:
    """Return the value of an input, converted if it is text from a command line. Raises ValueError."""
    value = _converted(entry.type, value)
    if not _is_of_type(value, entry.type):
        raise ValueError(f"{name} is {json.dumps(value, default=str)[:80]}; accepted: {_DESCRIBED[entry.type]}")
    if entry.choices and value not in entry.choices:
        raise ValueError(f"{name} is {value!r}; accepted: {nearest(str(value), entry.choices)}")
    if entry.pattern is not None and isinstance(value, str) and not re.fullmatch(entry.pattern, value):
        raise ValueError(f"{name} is {value!r}; accepted: what matches {entry.pattern}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if entry.minimum is not None and value < entry.minimum:
            raise ValueError(f"{name} is {value}; accepted: at least {entry.minimum:g}")
        if entry.maximum is not None and value > entry.maximum:
            raise ValueError(f"{name} is {value}; accepted: at most {entry.maximum:g}")
    if entry.type == "secret" and not re.match(r"(env|file):.+", str(value)):
        raise ValueError(f"{name} is a secret; accepted: env:NAME or file:PATH, and never the secret itself")
    if isinstance(value, str) and "\0" in value:
        raise ValueError(f"{name} has a NUL character; accepted: text without one")
    return value


def check_output(name: str, entry: OutputForm, value: object) -> None:
    """Raise ValueError if the value of an output is not of its type."""
    if entry.type is None or (value is None and entry.optional):
        return
    if not _is_of_type(value, entry.type):
        raise ValueError(f"{name} is {json.dumps(value, default=str)[:80]}, and not {_DESCRIBED[entry.type]}")


def _is_of_type(value: object, kind: Type | OutputType) -> bool:
    return isinstance(value, _PYTHON_TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _converted(kind: Type, value: object) -> object:
    if not isinstance(value, str) or kind in ("string", "path", "secret"):
        return value
    if kind == "list":
        return [part.strip() for part in value.split(",") if part.strip()]
    try:
        parsed = json.loads(value)
    except ValueError:
        return value
    return parsed if isinstance(parsed, int | float) else value


_PYTHON_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "path": str,
    "secret": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "list": list,
    "object": dict,
}
_DESCRIBED: Final = {
    "string": "a text",
    "path": "the path of a file or a folder",
    "secret": "env:NAME or file:PATH",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "list": "a list",
    "object": "keys and values",
}
