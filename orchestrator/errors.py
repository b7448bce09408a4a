"""The base classes of all errors of the orchestrator.

    OrchestratorError
    ├── InputError          the user's input is wrong; exit code 2
    │   ├── InvalidTask     a TaskIR document, one Problem or more        orchestrator.task.taskir
    │   └── RequestIncomplete   a request needs what is not here; exit code 3
    ├── IllegalTransition   an event that a run's state does not allow    orchestrator.run.scheduler
    ├── EngineError         a llama.cpp process failed                    orchestrator.engine
    ├── PoolError           a model is not available                      orchestrator.pool
    ├── PlanError           no plan could be made for a request           orchestrator.run.planning
    ├── SandboxError        a program was not run                         orchestrator.run.sandbox
    └── JournalError        the state folder or its database fails        orchestrator.run.journal

Each package defines its own branch. `registry` does not depend on this module, and has `registry.errors`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input."""

    where: str
    """Its place: a JSON pointer, a file or an option."""
    what: str
    """What is wrong."""
    accepted: str = ""
    """What would be accepted instead."""

    def __str__(self) -> str:
        tail = f"; accepted: {self.accepted}" if self.accepted else ""
        return f"{self.where}: {self.what}{tail}"


class OrchestratorError(Exception):
    """The base class of every error that the orchestrator raises on purpose."""


class InputError(OrchestratorError):
    """The user's input cannot be used, and nothing was changed. `problems` has at least one reason."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class RequestIncomplete(InputError):
    """A request needs what is not here, such as a file that it names. `missing` has one sentence for each thing."""

    def __init__(self, *missing: str) -> None:
        super().__init__(*(Problem("request", sentence) for sentence in missing))
        self.missing = missing
