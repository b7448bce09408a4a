"""Define what procedures act on, and check who asks for them. What they act on is passed in."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Final, Generic, TypeVar

from orchestrator.procedures.errors import ProcedureForbidden, StepFailed
from orchestrator.procedures.resources import Resource
from orchestrator.registry.forms import Form
from orchestrator.service.callers import Caller

F = TypeVar("F", bound=Form)
MAX_OUTPUT: Final = 64 * 1024  # bytes kept of a program's stdout, and of its stderr

PLANNING_SECONDS: Final = 60.0  # limit of an operation that only reads, when a plan is made


def proposer(run: str) -> str:
    """Return the name of a run's plan as a caller."""
    return f"the plan of run {run}"


def require_role(caller: Caller, accepted: Sequence[str], action: str) -> None:
    """Raise ProcedureForbidden if the caller has none of these roles."""
    if not caller.roles & set(accepted):
        has = ", ".join(sorted(caller.roles)) or "none"
        raise ProcedureForbidden(
            f"{caller.name} may not {action}: it has the roles {has}; accepted: {', '.join(accepted)}"
        )


@dataclass(frozen=True, slots=True)
class Work:
    """The context of a step, without its arguments."""

    key: str  # idempotency key: the same for all attempts at a step of an execution
    deadline: float  # of the step, by `time.monotonic`
    cancelled: Event  # set when the execution should stop; long work has to check it or wait for it
    say: Callable[[str], None]  # tells watchers how far the step is
    attempt: int = 1  # counts from 1 again when an interrupted execution is resumed
    owner: str = ""  # key of the caller who asked for the execution, and owns what it makes

    @property
    def seconds_left(self) -> float:
        """The time left. Raises StepFailed if there is none, or the execution was cancelled."""
        seconds = self.deadline - time.monotonic()
        if self.cancelled.is_set():
            raise StepFailed("the execution was cancelled")
        if seconds <= 0:
            raise StepFailed("its time is over")
        return seconds


def planning_work() -> Work:
    """Return the context of a read-only operation that runs while a plan is made."""
    return Work("plan", time.monotonic() + PLANNING_SECONDS, Event(), lambda _text: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[F]):
    """An operation that steps can call.

    An interrupted step is undone and run again, so an operation may be called twice.
    """

    name: str
    description: str
    form: type[F]  # of the arguments
    run: Callable[[F, Work], Mapping[str, Any]]  # returns JSON outputs; raises StepFailed
    outputs: Mapping[str, str] = field(default_factory=dict)  # descriptions of outputs, by name
    changes: Callable[[F], Sequence[Resource]] = (
        lambda _arguments: ()
    )  # resources to copy before, and to put back in a rollback
    # text for the plan, as exact as possible; changes nothing; raises StepFailed
    preview: Callable[[F], str] = lambda _arguments: ""
    reads_only: bool = False  # changes nothing and is quick, so it also runs when a plan is made
    irreversible: str = ""  # why copying what it changes does not undo it; empty if it does
    # Held while resources are copied and changed, or (True) put back; a daemon that uses them releases them meanwhile.
    # May be entered twice for a step. Raises StepFailed.
    guard: Callable[[F, bool], AbstractContextManager[object]] = lambda _arguments, _undoing: nullcontext()
    leaves: str = ""  # what it makes that no copy undoes, so the step needs a compensation
    # Called after its changes were put back, to stop what it started or tell a daemon, with the operation's arguments
    # and key; not for a step that runs again. May be called twice. Raises StepFailed.
    undone: Callable[[F, Work], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    command: tuple[str, ...]
    sandbox: bool
    folder: Path | None
    files: Mapping[str, Path]
    stdin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    exit_code: int  # 128 + n if signal n ended it
    stdout: str
    stderr: str


def _no_programs(_program: Program, _work: Work) -> Ended:
    raise StepFailed("programs cannot be run here")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcedurePorts:
    registry: Path  # the registry's file
    places: Mapping[str, str] = field(default_factory=dict)  # by name, see `procedures.forms.PLACES`
    # By name. Steps of the kinds taskir, gate and benchmark call these names, memory steps `memory.NAME`.
    operations: Mapping[str, Operation[Any]] = field(default_factory=dict)
    # in the sandbox, or outside if the configuration allows it; raises StepFailed
    run_program: Callable[[Program, Work], Ended] = _no_programs
