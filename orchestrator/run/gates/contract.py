"""Define what a gate is, what it is given, and what it returns."""

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from orchestrator.run.sandbox import JobOutcome, SandboxJob
from orchestrator.task.events import FailureKind, GateResult
from orchestrator.task.taskir import Commands, Step

Language = Literal["python", "shell", "json", "text"]

_CHILD_INDEX = re.compile(r"\[\d+\]\Z")
_SUFFIXES: Mapping[str, Language] = {".py": "python", ".sh": "shell", ".bash": "shell", ".json": "json"}


@dataclass(frozen=True, slots=True)
class Artifact:
    """An output of a step."""

    name: str
    """The name that the plan gives it. A child of a `foreach` step adds `[i]` to it."""
    data: bytes

    @property
    def file(self) -> str:
        """Return the name of the file that holds the artifact in the sandbox."""
        return file_name(self.name)


def file_name(name: str) -> str:
    """Return an artifact's name without the `[i]` that a child of a `foreach` step adds to it."""
    return _CHILD_INDEX.sub("", name)


def language(step: Step, name: str) -> Language:
    """Return the language of a step's output: by its name, or JSON if the step has an output schema.

    A child of a `foreach` step writes `list.json[0]`, which is text: only the list that its parent joins is JSON. What
    it writes as `all.py[0]` is Python.
    """
    if is_json(step, name):
        return "json"
    plain = file_name(name)
    found = _SUFFIXES.get(plain[plain.rfind(".") :], "text")
    return "text" if found == "json" else found


def is_json(step: Step, name: str) -> bool:
    """Return whether the artifact `name` of a step has to be JSON: it has a schema, or its name ends in `.json`."""
    return step.output_schema is not None or name.endswith(".json")


def as_first_child(step: Step) -> Step:
    """Return the first child of a `foreach` step, and any other step unchanged.

    Gates check the outputs of the children, which are called `name[0]` and so on, and not those of the parent.
    """
    if step.foreach is None or _CHILD_INDEX.search(step.id):
        return step
    return step.model_copy(update={"outputs": tuple(f"{name}[0]" for name in step.outputs)})


@dataclass(frozen=True, slots=True)
class Scope:
    """What is known of a step before it runs. It alone decides which of the requested gates will run."""

    step: Step
    task_inputs: tuple[str, ...] = ()
    """The labels of the task's inputs, some of which may be tests."""
    commands: Commands = field(default_factory=Commands)
    """The commands that the task has for the gates build and bench."""

    def outputs(self, *languages: Language) -> tuple[str, ...]:
        """Return the names of the outputs that are written in one of these languages."""
        return tuple(name for name in self.step.outputs if language(self.step, name) in languages)


class GateError(Exception):
    """A gate could not reach a verdict, so the artifacts do not pass."""

    def __init__(self, reason: str, kind: FailureKind = FailureKind.INFRASTRUCTURE, *, final: bool = False) -> None:
        """`kind` is INFRASTRUCTURE if a tool, the sandbox or the judge is missing or broken, and TIMEOUT or RESOURCE
        if a limit ended the tool. `final` says that every other attempt at the step would meet the same error.
        """
        super().__init__(reason)
        self.kind = kind
        self.final = final


class GateSkipped(Exception):
    """A gate that nobody asked for cannot run here. The artifacts pass without it, and its result gives the reason."""


RunJob = Callable[[SandboxJob], Awaitable[JobOutcome]]
"""Runs a job in the sandbox.

Raises `GateError` where the job cannot be run, or `GateSkipped` if the gate was only added by default.
"""

RunnerFor = Callable[[float], RunJob]
"""Returns what runs the jobs of a step that may be late by so many seconds without delaying its run."""


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """The answer of the judge role."""

    text: str
    tokens: int = 0
    """The tokens of prompt and answer together."""
    work_seconds: float = 0.0
    """Its share of the engine's computing, see `events.Usage`."""


Judge = Callable[[Sequence[tuple[str, str]], str, Mapping[str, Any]], Awaitable[JudgeAnswer]]
"""Asks the judge role. Arguments: (name, text) of each input, the instruction, and the JSON Schema of the answer.

Raises `GateError` if there is no answer.
"""


async def no_sandbox(job: SandboxJob) -> JobOutcome:
    """Default for `GateContext.run`, where there is no sandbox: raise `GateError`."""
    raise GateError("there is no sandbox to run tools in", final=True)


def no_runner(slack: float) -> RunJob:
    """Default for `RunnerFor`, where there is no sandbox: return `no_sandbox`."""
    return no_sandbox


async def no_judge(inputs: Sequence[tuple[str, str]], action: str, schema: Mapping[str, Any]) -> JudgeAnswer:
    """Default for `GateContext.judge`, where there is no judge: raise `GateError`."""
    raise GateError("the registry has no role judge with a model that is there", final=True)


@dataclass(frozen=True, slots=True)
class GateContext:
    """What a gate may use beside the artifacts."""

    scope: Scope
    reads: Mapping[str, bytes] = field(default_factory=dict)
    """The texts that the step has read, by name."""
    tests: Mapping[str, bytes] = field(default_factory=dict)
    """The tests among the task's inputs that belong to what the step writes, by name."""
    users: frozenset[str] = frozenset()
    """The names of those reads that the user gave; models wrote all others. A step may write new versions of them."""
    run: RunJob = no_sandbox
    judge: Judge = no_judge

    @property
    def step(self) -> Step:
        """Return the step whose outputs are checked."""
        return self.scope.step

    def select(self, artifacts: Sequence[Artifact], *languages: Language) -> list[Artifact]:
        """Return the artifacts that are written in one of these languages."""
        return [artifact for artifact in artifacts if language(self.step, artifact.name) in languages]


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a gate that has safely changed the artifacts instead of failing them, as the formatter does."""

    result: GateResult
    artifacts: tuple[Artifact, ...]
    """All artifacts of the attempt, as they are after the change."""


class Gate(ABC):
    """A check on everything that one attempt wrote. The pipeline measures its time, and may cancel it."""

    name: ClassVar[str]
    """The name by which a task or step requests the gate."""
    fails_as: ClassVar[FailureKind]
    """The kind of its failures, unless a result names another."""
    sequential: ClassVar[bool] = False
    """Whether the gate starts only after all gates before it have passed. All others run concurrently."""

    @abstractmethod
    def skip_reason(self, scope: Scope) -> str:
        """Return why the gate has nothing to check in this step, or an empty string if it has."""

    @abstractmethod
    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult | Repaired:
        """Check the artifacts. The pipeline calls it only if `skip_reason` is empty.

        Raises `GateError` if it can reach no verdict. Whatever the artifacts contain raises nothing.
        """

    def passed(self, note: str = "") -> GateResult:
        """Return the result of a gate that found nothing wrong."""
        return GateResult(self.name, "passed", note)

    def failed(self, evidence: str, kind: FailureKind | None = None) -> GateResult:
        """Return the result of a gate that found something wrong; the next attempt gets to read the `evidence`."""
        return GateResult(self.name, "failed", evidence, kind=kind or self.fails_as)
