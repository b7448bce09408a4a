"""Which gates a step has, in which order, and which of them have nothing to check. Pure.

Reports and plans need this, and no gate: so nothing of a gate, its tool or the sandbox is imported here.

A test file is called `test_NAME.py` or `NAME_test.py`, and belongs to the module `NAME.py`:

- *unit tests* are those that the step writes, and those of a module that it writes: among its reads, or among the
  task's inputs, which the model that writes the module does not see;
- *integration tests* are all other tests that the step reads.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from orchestrator.task.taskir.models import Commands, Step, TaskIR

Language = Literal["python", "shell", "json", "text"]

JUDGE: Final = "judge"  # the gate, and the role that it asks
_CHILD_INDEX: Final = re.compile(r"\[\d+\]\Z")
_SUFFIXES: Final[Mapping[str, Language]] = {".py": "python", ".sh": "shell", ".bash": "shell", ".json": "json"}


@dataclass(frozen=True, slots=True)
class Scope:
    """The facts about a step before it runs, which decide which of the requested gates will run."""

    step: Step
    task_inputs: tuple[str, ...] = ()  # labels; some may be tests
    commands: Commands = field(default_factory=Commands)  # for the gates build and bench

    def outputs(self, *languages: Language) -> tuple[str, ...]:
        return tuple(name for name in self.step.outputs if language(self.step, name) in languages)


Idle = Callable[[Scope], str]  # returns why a gate has nothing to check in a step; empty if it has


@dataclass(frozen=True, slots=True)
class PlannedGate:
    gate: str
    idle: str  # why it will not run on this step's outputs; empty if it will


@dataclass(frozen=True, slots=True)
class GateRow:
    """The description of a gate, without its code."""

    name: str
    code: str  # its class, as `MODULE:CLASS` in this package
    idle: Idle
    default_for: tuple[Language, ...] = ()  # outputs that it checks in a plan that cannot name gates
    program: str = ""  # that it runs, searched on the PATH
    module: str = ""  # of this Python that it runs
    role: str = ""  # of the registry that it asks; without a usable model, tasks may not name the gate


def file_name(name: str) -> str:
    """Return an artifact's name without the `[i]` of a child of a `foreach` step."""
    return _CHILD_INDEX.sub("", name)


def language(step: Step, name: str) -> Language:
    """Return the language of a step's output: by its name, or JSON if the step has an output schema."""
    if is_json(step, name):
        return "json"
    plain = file_name(name)
    file_type = _SUFFIXES.get(plain[plain.rfind(".") :], "text")
    # A child writes one element, `list.json[0]`: only the list that its parent joins is JSON.
    return "text" if file_type == "json" else file_type


def is_json(step: Step, name: str) -> bool:
    """Return whether an artifact must be JSON: the step has a schema, or its name ends in `.json`."""
    return step.output_schema is not None or name.endswith(".json")


def as_first_child(step: Step) -> Step:
    """Return the first child of a `foreach` step, and any other step unchanged.

    Gates check the outputs of the children (`name[0]` and so on), not those of the parent.
    """
    if step.foreach is None or _CHILD_INDEX.search(step.id):
        return step
    return step.model_copy(update={"outputs": tuple(f"{name}[0]" for name in step.outputs)})


def module_under_test(name: str) -> str | None:
    """Return the module that a test file tests, without `.py`; None if `name` is not a test file."""
    if not file_name(name).endswith(".py"):
        return None
    stem = stem_of(name)
    if stem.startswith("test_"):
        return stem.removeprefix("test_")
    return stem.removesuffix("_test") if stem.endswith("_test") else None


def stem_of(name: str) -> str:
    """Return the name of a module, given that of its artifact."""
    return file_name(name).rpartition("/")[2].removesuffix(".py")


def unit_tests(scope: Scope) -> tuple[str, ...]:
    """Return a step's unit tests: first its outputs, then what it reads, then inputs of the task."""
    written = [name for name in scope.step.outputs if module_under_test(name) is not None]
    modules = {stem_of(name) for name in scope.outputs("python")}
    matching = [name for name in (*scope.step.inputs, *scope.task_inputs) if module_under_test(name) in modules]
    return tuple(dict.fromkeys([*written, *matching]))


def integration_tests(scope: Scope) -> tuple[str, ...]:
    """Return a step's integration tests, in the order of its reads."""
    units = unit_tests(scope)
    return tuple(
        name for name in dict.fromkeys(scope.step.inputs) if module_under_test(name) is not None and name not in units
    )


def unseen_tests(scope: Scope) -> tuple[str, ...]:
    """Return the unit tests among the task's inputs that the step does not read.

    If the step writes a file of the same name, the input counts.
    """
    return tuple(name for name in unit_tests(scope) if name in scope.task_inputs and name not in scope.step.inputs)


def is_started(name: str) -> bool:
    """Return whether an output is Python that can be started by itself: no test, and no settings of tests."""
    return file_name(name).endswith(".py") and module_under_test(name) is None and stem_of(name) != "conftest"


def _without(language: Language, idle: str) -> Idle:
    return lambda scope: "" if scope.outputs(language) else idle


def _no_build(scope: Scope) -> str:
    if scope.commands.build or scope.outputs("python"):
        return ""
    return "no output is Python, and the task has no commands.build"


def _no_program(scope: Scope) -> str:
    return "" if any(map(is_started, scope.outputs("python"))) else "no output is Python that can be started"


def _no_unit_tests(scope: Scope) -> str:
    return "" if unit_tests(scope) else "there is no test_NAME.py for an output NAME.py"


def _no_integration_tests(scope: Scope) -> str:
    return "" if integration_tests(scope) else "the step reads no tests but those of its own outputs"


def _no_bench(scope: Scope) -> str:
    return "" if scope.commands.bench else "the task has no commands.bench"


def _no_outputs(scope: Scope) -> str:
    return "" if scope.step.outputs else "the step writes nothing"


# All gates, in the order in which they check an artifact. A default needs nothing but the artifact, and fails nothing
# that works. `security` would fail much that is intended.
GATES: Final = (
    GateRow(
        "schema",
        "schema:Schema",
        _without("json", "neither an output_schema nor an output that ends in .json"),
        default_for=("json",),
    ),
    GateRow(
        "shellcheck",
        "shellcheck:Shellcheck",
        _without("shell", "no output is a shell script"),
        default_for=("shell",),
        program="shellcheck",
    ),
    GateRow(
        "format", "format:Format", _without("python", "no output is Python"), default_for=("python",), program="ruff"
    ),
    GateRow("lint", "lint:Lint", _without("python", "no output is Python"), default_for=("python",), program="ruff"),
    GateRow("build", "build:Build", _no_build, default_for=("python",)),
    GateRow("typecheck", "typecheck:Typecheck", _without("python", "no output is Python"), module="mypy"),
    GateRow("security", "security:Security", _no_outputs, program="ruff"),
    GateRow("smoke", "smoke:Smoke", _no_program, default_for=("python",)),
    GateRow("unit", "tests:Unit", _no_unit_tests, module="pytest"),
    GateRow("integration", "tests:Integration", _no_integration_tests, module="pytest"),
    GateRow("bench", "bench:BenchGate", _no_bench),
    GateRow(JUDGE, "judge:JudgeGate", _no_outputs, role=JUDGE),
)
IDLE: Final[Mapping[str, Idle]] = {row.name: row.idle for row in GATES}


def requested_gates(step: Step, task_gates: Sequence[str]) -> tuple[str, ...]:
    if not step.run_gates:
        return ()
    return tuple(step.gates if step.gates is not None else task_gates)


def default_gates(step: Step) -> tuple[str, ...]:
    """Return the gates of a step in a plan that cannot name gates: those for the languages of its outputs."""
    scope = Scope(as_first_child(step))
    languages = {language(step, name) for name in scope.step.outputs}
    modules = {stem_of(name) for name in scope.outputs("python")}
    # It writes a module and its tests, or reads tests of a module that it writes.
    tested = any(module_under_test(name) in modules for name in unit_tests(scope))
    return tuple(
        row.name for row in GATES if languages.intersection(row.default_for) or (tested and row.name == "unit")
    )


def planned_gates(requested: Collection[str], scope: Scope, idle: Mapping[str, Idle] = IDLE) -> tuple[PlannedGate, ...]:
    """Return the requested gates in their order, unknown ones last, each with the reason if it will not run."""
    names = [*(gate for gate in IDLE if gate in requested), *sorted(set(requested) - IDLE.keys())]
    unknown = "this version has no such gate"
    return tuple(PlannedGate(name, idle[name](scope) if name in idle else unknown) for name in names)


def gates_for_step(step: Step, task: TaskIR | None) -> tuple[PlannedGate, ...]:
    """Return the gates that a step requests. `task` is None for a run of a request in words."""
    requested = requested_gates(step, task.gates if task else ())
    return planned_gates(requested, scope_of(step, task)) if requested else ()


def scope_of(step: Step, task: TaskIR | None) -> Scope:
    checked = as_first_child(step)
    return Scope(checked) if task is None else Scope(checked, task.labels, task.commands)
