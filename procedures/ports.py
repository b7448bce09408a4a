"""What procedures act on, and who asks for them. The composition root hands these in."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Final, Generic, TypeVar

from procedures.errors import ProcedureForbidden, StepFailed
from procedures.resources import Resource
from registry.forms import Form

F = TypeVar("F", bound=Form)
MAX_OUTPUT: Final = 64 * 1024
"""How many bytes are kept of what a program writes to stdout, and to stderr."""

PLANNING_SECONDS: Final = 60.0
"""How long an operation that only reads may take when a plan is made."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks for something."""

    name: str
    """Such as `ann (user 1000)` or `the API's token from 127.0.0.1`, for the audit log."""
    roles: frozenset[str]
    person: bool
    """Whether a person asks, who may approve plans. Schedules and models are none, and of users and tokens those are
    that the configuration says."""
    key: str = ""
    """Who owns what the execution makes, as `user:ann`; empty if nobody is known to."""

    def require(self, accepted: Sequence[str], what: str) -> None:
        """Raise ProcedureForbidden if the caller has none of these roles."""
        if not self.roles & set(accepted):
            has = ", ".join(sorted(self.roles)) or "none"
            raise ProcedureForbidden(
                f"{self.name} may not {what}: it has the roles {has}; accepted: {', '.join(accepted)}"
            )


@dataclass(frozen=True, slots=True)
class Work:
    """What whoever carries out a step needs to know besides its arguments."""

    key: str
    """The idempotency key: the same for every attempt at the same step of the same execution."""
    deadline: float
    """When the step has to have ended, by `time.monotonic`."""
    cancelled: Event
    """Set when the execution is to stop. Long work looks at it now and then, or waits for it."""
    say: Callable[[str], None]
    """Tells watchers how far the step is."""
    attempt: int = 1
    """The number of the attempt at the step. It counts from 1 again when an interrupted execution is resumed."""
    owner: str = ""
    """The key of the caller who asked for the execution, who owns what it makes."""

    @property
    def seconds_left(self) -> float:
        """The seconds until the deadline. Raises StepFailed if there are none, or if the execution was cancelled."""
        left = self.deadline - time.monotonic()
        if self.cancelled.is_set():
            raise StepFailed("the execution was cancelled")
        if left <= 0:
            raise StepFailed("its time is over")
        return left


def planning_work() -> Work:
    """Return what an operation that only reads is given when a plan is made."""
    return Work("plan", time.monotonic() + PLANNING_SECONDS, Event(), lambda _text: None)


def _nothing(_arguments: Any) -> Sequence[Resource]:
    return ()


def _no_preview(_arguments: Any) -> str:
    return ""


def unguarded(_arguments: Any, _undoing: bool) -> AbstractContextManager[object]:
    """Hold nothing: the guard of most operations."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[F]):
    """An operation of the orchestrator that steps can call.

    A step that was interrupted is carried out again after what it has changed was put back, so an operation has to bear
    being carried out twice.
    """

    name: str
    description: str
    form: type[F]
    """The arguments."""
    run: Callable[[F, Work], Mapping[str, Any]]
    """Carries it out and returns its outputs, which are values as JSON has them. Raises StepFailed."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """What it returns: descriptions by name."""
    changes: Callable[[F], Sequence[Resource]] = _nothing
    """What it changes, to be copied before and put back by a rollback."""
    preview: Callable[[F], str] = _no_preview
    """What it is going to do, as exactly as can be said, for the plan. Changes nothing. Raises StepFailed."""
    reads_only: bool = False
    """Whether it changes nothing and is quick, so that it is also carried out when a plan is made."""
    irreversible: str = ""
    """Why copying what it changes does not undo it; empty if it does."""
    guard: Callable[[F, bool], AbstractContextManager[object]] = unguarded
    """Returns what is held while the resources are copied and changed, or with True: while they are put back. A daemon
    that uses them lets go of them meanwhile. It may be entered a second time for the same step. Raises StepFailed."""
    leaves: str = ""
    """What it makes that no copy of `changes` undoes, so that a step which calls it needs a compensation; empty for
    nothing."""
    undone: Callable[[F, Work], None] | None = None
    """Is called after what the operation has changed was put back, to stop what it has begun, or to tell a daemon. It
    gets the arguments and the key of the operation, may be called again, and is not called for a step that was
    interrupted and is carried out again. Raises StepFailed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to run."""

    command: tuple[str, ...]
    sandbox: bool
    folder: Path | None
    files: Mapping[str, Path]
    stdin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended."""

    exit_code: int
    """128 + n if signal n ended it."""
    stdout: str
    stderr: str


def _no_programs(_program: Program, _work: Work) -> Ended:
    raise StepFailed("programs cannot be run here")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcedurePorts:
    """What procedures act on."""

    registry: Path
    """The registry's file."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Paths by the names that templates use: see `procedures.forms.PLACES`."""
    operations: Mapping[str, Operation[Any]] = field(default_factory=dict)
    """By name. Steps of the kinds taskir, gate and benchmark call those of these names, and steps of the kind memory
    those whose names begin with `memory.`."""
    run_program: Callable[[Program, Work], Ended] = _no_programs
    """Runs a program in the sandbox, or outside of it if the configuration allows that. Raises StepFailed."""
