"""The contract of a gate: what it is given, and what it returns."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from orchestrator.run.gates.planned import IDLE, Language, Scope, file_name, language
from orchestrator.run.sandbox.contract import JobOutcome, SandboxJob
from orchestrator.task.events import FailureKind, GateResult
from orchestrator.task.taskir.models import Step


@dataclass(frozen=True, slots=True)
class Artifact:
    name: str  # as in the plan; a child of a `foreach` step adds `[i]`
    data: bytes

    @property
    def file(self) -> str:
        """Its name in the sandbox."""
        return file_name(self.name)


class GateError(Exception):
    """A gate reached no verdict, so the artifacts do not pass."""

    def __init__(self, reason: str, kind: FailureKind = FailureKind.INFRASTRUCTURE, *, final: bool = False) -> None:
        """`kind`: INFRASTRUCTURE if a tool, the sandbox or the judge is broken; TIMEOUT or RESOURCE at a limit.

        `final`: every other attempt at the step would meet the same error.
        """
        super().__init__(reason)
        self.kind = kind
        self.final = final


class GateSkipped(Exception):
    """A gate that is only there by default cannot run. The artifacts pass without it."""


# Runs a job in the sandbox. Raises GateError if it cannot, or GateSkipped if the gate is only there by default.
RunJob = Callable[[SandboxJob], Awaitable[JobOutcome]]

# Returns the RunJob of a step by its slack: the seconds that it may be late without delaying its run.
RunnerFor = Callable[[float], RunJob]


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    text: str
    tokens: int = 0  # prompt and answer together
    work_seconds: float = 0.0  # its share of the engine's computing, see `events.Usage`


# Asks the judge role: (name, text) of each input, the instruction, JSON Schema of the answer. Raises GateError.
Judge = Callable[[Sequence[tuple[str, str]], str, Mapping[str, Any]], Awaitable[JudgeAnswer]]


# The defaults of `GateContext.run`, of a `RunnerFor` and of `GateContext.judge`.
async def no_sandbox(job: SandboxJob) -> JobOutcome:
    raise GateError("there is no sandbox to run tools in", final=True)


def no_runner(slack: float) -> RunJob:
    return no_sandbox


async def no_judge(inputs: Sequence[tuple[str, str]], action: str, schema: Mapping[str, Any]) -> JudgeAnswer:
    raise GateError("the registry has no role judge with a model that is there", final=True)


@dataclass(frozen=True, slots=True)
class GateContext:
    """What a gate may use in addition to the artifacts."""

    scope: Scope
    reads: Mapping[str, bytes] = field(default_factory=dict)  # by name
    # those of the task's inputs that test the step's outputs, by name
    tests: Mapping[str, bytes] = field(default_factory=dict)
    # Names of the reads that come from the user, not from a model. A step may write new versions of them.
    users: frozenset[str] = frozenset()
    run: RunJob = no_sandbox
    judge: Judge = no_judge

    @property
    def step(self) -> Step:
        return self.scope.step

    def select(self, artifacts: Sequence[Artifact], *languages: Language) -> list[Artifact]:
        """Return those that are in these languages."""
        return [artifact for artifact in artifacts if language(self.step, artifact.name) in languages]


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a gate that changes the artifacts safely instead of failing them, as the formatter does."""

    result: GateResult
    artifacts: tuple[Artifact, ...]  # all of the attempt, after the change


class Gate(ABC):
    """A check on everything that one attempt wrote. The pipeline measures its time, and may cancel it."""

    name: ClassVar[str]  # by which a task or step requests it
    fails_as: ClassVar[FailureKind]  # unless a result names another kind
    # Whether it starts only after all gates before it have passed. The others run concurrently.
    sequential: ClassVar[bool] = False

    def skip_reason(self, scope: Scope) -> str:
        """Return why the gate has nothing to check in this step; empty if it has."""
        return IDLE[self.name](scope)

    @abstractmethod
    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult | Repaired:
        """Check the artifacts; called only if `skip_reason` is empty.

        Raises GateError if it can reach no verdict. No content of an artifact raises anything.
        """

    def passed(self, note: str = "") -> GateResult:
        return GateResult(self.name, "passed", note)

    def failed(self, evidence: str, kind: FailureKind | None = None) -> GateResult:
        """Return a failure; the next attempt reads the `evidence`."""
        return GateResult(self.name, "failed", evidence, kind=kind or self.fails_as)
