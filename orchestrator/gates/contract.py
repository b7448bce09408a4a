"""Define what a gate is: what it is given, and what it answers."""

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from orchestrator.events import FailureKind, GateResult
from orchestrator.sandbox.contract import Job, Outcome
from orchestrator.taskir import Commands, Step

Language = Literal["python", "shell", "json", "text"]

_ITEM = re.compile(r"\[\d+\]\Z")
_SUFFIXES: Mapping[str, Language] = {".py": "python", ".sh": "shell", ".bash": "shell", ".json": "json"}


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a step made, under the name that the plan gave it."""

    name: str
    data: bytes

    @property
    def file(self) -> str:
        """Its name as a file of the sandbox."""
        return file_name(self.name)


def file_name(name: str) -> str:
    """Return an artifact's name without the `[i]` that a child of a `foreach` step adds to it."""
    return _ITEM.sub("", name)


def language(step: Step, name: str) -> Language:
    """Return what an output of a step is written in; its name tells, or that the step has an output schema.

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


def as_looked_at(step: Step) -> Step:
    """Return a step as gates see it: of a `foreach` step the first child, which writes `name[0]` and not `name`."""
    if step.foreach is None or _ITEM.search(step.id):
        return step
    return step.model_copy(update={"outputs": tuple(f"{name}[0]" for name in step.outputs)})


@dataclass(frozen=True, slots=True)
class Scope:
    """What is known of a step before it runs. It alone says which gates look at the outputs.

    `given` are the labels of the task's inputs, some of which may be tests.
    """

    step: Step
    given: tuple[str, ...] = ()
    commands: Commands = field(default_factory=Commands)

    def outputs(self, *wanted: Language) -> tuple[str, ...]:
        """Return the names of the outputs that are written in one of these languages."""
        return tuple(name for name in self.step.outputs if language(self.step, name) in wanted)


class GateError(Exception):
    """A gate came to no verdict, and so the artifacts do not pass.

    INFRASTRUCTURE: a tool, the sandbox or the judge is missing or broken. TIMEOUT, RESOURCE: a limit ended the tool. A
    `final` one would be met again however often the step is tried.
    """

    def __init__(self, reason: str, kind: FailureKind = FailureKind.INFRASTRUCTURE, *, final: bool = False) -> None:
        super().__init__(reason)
        self.kind = kind
        self.final = final


class GateSkipped(Exception):
    """A gate that nobody insists on cannot look here. The artifacts pass without it, and its result says why."""


RunJob = Callable[[Job], Awaitable[Outcome]]
"""Runs a job in the sandbox.

Raises `GateError` where there is no sandbox, or `GateSkipped` if the gate was only added by default."""


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """What the judge role has answered, and the tokens that it read and wrote."""

    text: str
    tokens: int = 0


Judge = Callable[[Sequence[tuple[str, str]], str, Mapping[str, Any]], Awaitable[JudgeAnswer]]
"""Lets the judge role answer: (name, text) of what it reads, what to do, schema. Raises `GateError`."""


async def no_sandbox(job: Job) -> Outcome:
    """Refuse to run anything."""
    raise GateError("there is no sandbox to run tools in", final=True)


async def no_judge(inputs: Sequence[tuple[str, str]], action: str, schema: Mapping[str, Any]) -> JudgeAnswer:
    """Refuse to judge."""
    raise GateError("the registry has no role judge with a model that is there", final=True)


@dataclass(frozen=True, slots=True)
class GateContext:
    """What a gate may use beside the artifacts.

    `reads` are the texts that the step reads and `tests` those tests of the task that go with it, both by name.
    """

    scope: Scope
    reads: Mapping[str, bytes] = field(default_factory=dict)
    tests: Mapping[str, bytes] = field(default_factory=dict)
    run: RunJob = no_sandbox
    judge: Judge = no_judge

    @property
    def step(self) -> Step:
        """The step whose outputs are looked at."""
        return self.scope.step

    def chosen(self, artifacts: Sequence[Artifact], *wanted: Language) -> list[Artifact]:
        """Return the artifacts that are written in one of these languages."""
        return [artifact for artifact in artifacts if language(self.step, artifact.name) in wanted]


@dataclass(frozen=True, slots=True)
class Repaired:
    """A gate mended what it would have complained about, where that is safe: the artifacts as they are now."""

    result: GateResult
    artifacts: tuple[Artifact, ...]


class Gate(ABC):
    """Looks at all that one attempt made. The pipeline measures its time and stops it when it no longer matters.

    `fails_as` is what its failures count as, unless one says otherwise. A gate `sequential` starts when all before it have
    passed; the others look side by side.
    """

    name: ClassVar[str]
    fails_as: ClassVar[FailureKind]
    sequential: ClassVar[bool] = False

    @abstractmethod
    def skip_reason(self, scope: Scope) -> str:
        """Say why there is nothing here for the gate to look at; nothing if there is."""

    @abstractmethod
    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult | Repaired:
        """Look at the artifacts. Is only called where the gate is not idle.

        Raises `GateError`, and nothing for what the artifacts hold.
        """

    def passed(self, note: str = "") -> GateResult:
        """Return the result of a gate that found nothing wrong."""
        return GateResult(self.name, "passed", note)

    def failed(self, evidence: str, kind: FailureKind | None = None) -> GateResult:
        """Return the result of a gate that found the `evidence`."""
        return GateResult(self.name, "failed", evidence, kind=kind or self.fails_as)
