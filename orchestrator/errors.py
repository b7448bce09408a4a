"""What every error of the orchestrator has in common.

    OrchestratorError
    ├── InputError          what the user gave is wrong; exit code 2
    │   └── InvalidTask     a TaskIR document, one Problem or more        orchestrator.taskir
    ├── IllegalTransition   an event that a run's state does not allow    orchestrator.scheduler
    ├── EngineError         a llama.cpp process, and what it did          orchestrator.engine
    ├── PoolError           a model that cannot be had                    orchestrator.pool
    ├── PlanError           a request no plan could be made of            orchestrator.planning
    ├── SandboxError        a program that is not run, and why            orchestrator.sandbox
    └── JournalError        the state folder or its database              orchestrator.journal

Each package below this one owns its branch. `registry` stands on its own and has `registry.errors`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: where (JSON pointer, file or option), what, and what would be accepted."""

    where: str
    what: str
    accepted: str = ""

    def __str__(self) -> str:
        tail = f"; accepted: {self.accepted}" if self.accepted else ""
        return f"{self.where}: {self.what}{tail}"


class OrchestratorError(Exception):
    """The root of every error that the orchestrator raises on purpose."""


class InputError(OrchestratorError):
    """The user's input cannot be used. Nothing was changed; `problems` says why, at least once."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
