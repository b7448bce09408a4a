"""The errors of procedures.

ProcedureError
├── ProcedureInvalid    a procedure's file, or an input of it, cannot be used; `problems` has at least one reason
├── UnknownProcedure    there is no procedure of this name
├── UnknownExecution    there is no execution with this id
├── ProcedureRefused    it cannot be done now: an approval is missing, or the execution is not in that state
│   └── ProcedureForbidden  the caller has no right to do this
├── ChangedMeanwhile    what is to be changed or put back is not what it was
├── ProcedureBusy       another process is changing the same thing
├── StepFailed          a step has failed
├── PlanUnusable        the plan of an execution is gone, damaged, or one that this version cannot carry out
└── AuditDamaged        the audit log is not what was written
"""

from collections.abc import Iterable
from pathlib import Path

from registry.errors import RegistryProblem
from registry.forms import nearest


class ProcedureError(Exception):
    """The base class of the errors of procedures."""


class ProcedureInvalid(ProcedureError):
    """A procedure's file, or an input of it, cannot be used."""

    def __init__(self, *problems: RegistryProblem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class UnknownProcedure(ProcedureError):
    """There is no procedure called `name`; `known` are the names that there are."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.accepted = nearest(name, known)
        super().__init__(f"there is no procedure {name!r}; accepted: {self.accepted}")


class UnknownExecution(ProcedureError):
    """There is no execution with the id `execution`."""

    def __init__(self, execution: str) -> None:
        super().__init__(f"there is no execution {execution!r}; `orchestrator procedures history` lists them")
        self.execution = execution


class ProcedureRefused(ProcedureError):
    """It cannot be done now: an approval is missing, or the execution is in another state. Nothing was changed."""


class ProcedureForbidden(ProcedureRefused):
    """The caller has no right to do this. Nothing was changed."""


class ChangedMeanwhile(ProcedureError):
    """What is to be changed or put back is not what it was. Nothing was changed."""


class ProcedureBusy(ProcedureError):
    """Another process is changing the same thing. Nothing was changed."""


class StepFailed(ProcedureError):
    """A step has failed. Whoever carries out a step raises this with the reason."""


class PlanUnusable(ProcedureError):
    """The plan that was kept of an execution, in the file `path`, cannot be used; `why` says why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class AuditDamaged(ProcedureError):
    """The audit log at `path` is not what was written; `what` says in which way."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: the audit log was tampered with or damaged: {what}")
        self.path = path
        self.what = what
