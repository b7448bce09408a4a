"""Define what one try of a step is given and what it makes, whatever the kind of step."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.engine.client import Completion
from orchestrator.engine.contract import Generation
from orchestrator.events import Failure, GateResult, Usage
from orchestrator.gates import Run, no_sandbox
from orchestrator.steps.prompt import Input
from orchestrator.taskir import Commands, Step

MIN_ANSWER_TOKENS = 16
"""A prompt that leaves less of the context than this (or than the answer's limit) is too long."""

OnText = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRole:
    """Who judges: a model with its system prompt."""

    model: str
    system: str
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What gates may use, beside what the step reads and writes.

    `tests` are inputs of the task that belong to the step though it does not read them. `run` runs jobs in the sandbox.
    """

    tests: tuple[Input, ...] = ()
    commands: Commands = field(default_factory=Commands)
    judge: JudgeRole | None = None
    run: Run = no_sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a step, with all that was decided about it.

    `step` is concrete: a `foreach` child has outputs `name[0]`. `system` and `persona` are texts. `failures` are those
    of earlier attempts, oldest first. `gates` are those asked for. `context` is how many tokens one sequence of `model`
    may have, None to leave that to the engine; `max_tokens` holds where the step has no limit of its own.
    """

    step: Step
    model: str
    system: str
    persona: str = ""
    inputs: tuple[Input, ...] = ()
    failures: tuple[Failure, ...] = ()
    gates: tuple[str, ...] = ()
    checks: Checks = field(default_factory=Checks)
    context: int | None = None
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    slack: float = 0.0


@dataclass(frozen=True, slots=True)
class Models:
    """How to ask a model (its id comes first): the pool's `count` and `generate`."""

    count: Callable[[str, Sequence[tuple[str, str]]], Awaitable[int]]
    generate: Callable[[str, Generation, OnText | None], Awaitable[Completion]]


@dataclass(frozen=True, slots=True)
class Produced:
    """What an attempt made: artifacts by name, the gates' results, and what it took."""

    outputs: Mapping[str, bytes]
    gates: tuple[GateResult, ...]
    usage: Usage
