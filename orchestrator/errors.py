"""The base classes of all errors of the orchestrator. Each package defines its own branch.

    OrchestratorError
    ├── InputError          the user's input is wrong; exit code 2
    │   ├── InvalidTask     a TaskIR document, one Problem or more        orchestrator.task.taskir
    │   └── RequestIncomplete   a request needs what is not here; exit code 3
    ├── IllegalTransition   an event that a run's state does not allow    orchestrator.task.states
    ├── EngineError         a llama.cpp process failed                    orchestrator.engine
    ├── PoolError           a model is not available                      orchestrator.pool
    ├── PlanError           no plan could be made for a request           orchestrator.run.planning
    ├── NoLibrary           a process cannot be held to one address       orchestrator.cluster.listening
    ├── SandboxError        a program was not run                         orchestrator.run.sandbox
    └── JournalError        the state folder or its database fails        orchestrator.run.journal

`registry` does not depend on this module and has its own `registry.errors`.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    where: str  # a JSON pointer, a file or an option
    what: str
    accepted: str = ""  # what would be accepted instead

    def __str__(self) -> str:
        is_said = "; accepted: " in self.what  # by an error of a lower layer
        tail = f"; accepted: {self.accepted}" if self.accepted and not is_said else ""
        return f"{self.where}: {self.what}{tail}"


class OrchestratorError(Exception):
    """Base class of every error that the orchestrator raises on purpose."""


class InputError(OrchestratorError):
    """The input cannot be used, and nothing was changed. `problems` is never empty."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class RequestIncomplete(InputError):
    """A request needs something that is not here, such as a file. `missing` has a sentence for each."""

    def __init__(self, *missing: str) -> None:
        super().__init__(*(Problem("request", sentence) for sentence in missing))
        self.missing = missing


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside of an exception group, at any depth, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error
