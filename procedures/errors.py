"""The errors of procedures.

ProcedureError
├── ProcedureInvalid    a procedure's file, or an input of it, cannot be used; `problems` has at least one reason
├── UnknownProcedure    there is no procedure of this name
├── UnknownExecution    there is no execution with this id
├── ProcedureRefused    not possible now: an approval is missing, or the execution is in another state
│   └── ProcedureForbidden  the caller has no right to do this
├── ChangedMeanwhile    what is to be changed or put back is not what it was
├── ProcedureBusy       another process is changing the same thing
├── StepFailed          a step has failed
├── PlanUnusable        the plan of an execution is gone, damaged, or this version cannot carry it out
└── AuditDamaged        the audit log is not what was written

ProcedureRefused, ChangedMeanwhile and ProcedureBusy mean that nothing was changed.
"""

from collections.abc import Iterable
from pathlib import Path

from orchestrator.errors import Problem
from orchestrator.registry.errors import RegistryProblem, nearest


class ProcedureError(Exception):
    """The base class of the errors of procedures."""

    @property
    def input_problems(self) -> tuple[Problem, ...]:
        """What is wrong with the user's input; empty if that is not the cause."""
        return ()


class ProcedureInvalid(ProcedureError):
    def __init__(self, *problems: RegistryProblem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems

    @property
    def input_problems(self) -> tuple[Problem, ...]:
        return tuple(Problem(item.place, item.what, item.accepted) for item in self.problems)


class UnknownProcedure(ProcedureError):
    def __init__(self, name: str, names: Iterable[str]) -> None:
        self.name = name
        self.accepted = nearest(name, names)
        super().__init__(f"there is no procedure {name!r}; accepted: {self.accepted}")

    @property
    def input_problems(self) -> tuple[Problem, ...]:
        return (Problem("procedure", f"there is no procedure {self.name!r}", self.accepted),)


class UnknownExecution(ProcedureError):
    def __init__(self, execution: str) -> None:
        super().__init__(f"there is no execution {execution!r}; `orchestrator procedures history` lists them")
        self.execution = execution

    @property
    def input_problems(self) -> tuple[Problem, ...]:
        accepted = "one that the history of procedures lists"
        return (Problem("execution", f"there is no execution {self.execution!r}", accepted),)


class ProcedureRefused(ProcedureError):
    """The execution is in another state, or lacks an approval."""


class ProcedureForbidden(ProcedureRefused):
    """The caller has no right to do this."""


class ChangedMeanwhile(ProcedureError):
    """Something that a step would change or put back was changed by others meanwhile."""


class ProcedureBusy(ProcedureError):
    """Another process holds the lock."""


class StepFailed(ProcedureError):
    """Raised by whoever carries out a step, with the reason."""


class PlanUnusable(ProcedureError):
    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class AuditDamaged(ProcedureError):
    def __init__(self, path: Path, damage: str) -> None:
        super().__init__(f"{path}: the audit log was tampered with or damaged: {damage}")
        self.path = path
        self.damage = damage
