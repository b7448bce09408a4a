"""The states of a step, the legal transitions between them, and the error for all others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.errors import OrchestratorError


class State(StrEnum):
    """The state of a step. A `foreach` step is running from the reading of its list until its outputs are gathered."""

    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    CHECKING = "checking"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ACTIVE = frozenset({State.RUNNING, State.CHECKING})
FINAL = frozenset({State.DONE, State.FAILED, State.CANCELLED})

# Every legal change of state, and when it happens. Final states are left only by the one repair of an answer.
TRANSITIONS: Mapping[tuple[State, State], str] = {
    (State.WAITING, State.READY): "its last dependency is done",
    (State.WAITING, State.CANCELLED): "a dependency failed or was cancelled, or the user asked",
    (State.READY, State.RUNNING): "the limits admit it, and nothing more urgent is ready",
    (State.READY, State.CANCELLED): "the user asked",
    (State.RUNNING, State.CHECKING): "its model is done, the gates look at the output",
    (State.RUNNING, State.READY): "it is tried again: after a failure or a restart, or the user asked",
    (
        State.RUNNING,
        State.DONE,
    ): "its output is stored: without gates, gathered from its children, or reused from an earlier run",
    (State.RUNNING, State.FAILED): "no retry and no escalation is left, or a child failed",
    (State.RUNNING, State.CANCELLED): "the user asked, and its attempt has ended",
    (State.CHECKING, State.READY): "it is tried again: a gate failed, after a restart, or the user asked",
    (State.DONE, State.READY): "the answer is doubtful because of its output, which is repaired once",
    (State.READY, State.DONE): "its repair is not wanted any more, and its output stands",
    (State.CHECKING, State.DONE): "its output is stored, no gate failed",
    (State.CHECKING, State.FAILED): "no retry and no escalation is left",
    (State.CHECKING, State.CANCELLED): "the user asked, and its attempt has ended",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a step failed or was cancelled: the step where it started (None: the run itself), and the reason."""

    step: str | None
    reason: str

    def __str__(self) -> str:
        return f"{self.step}: {self.reason}" if self.step else self.reason


class IllegalTransition(OrchestratorError):
    """An event that the run's state does not allow, which is a defect of the code that sent it.

    `step` is None if the event is about the whole run. `state_history` lists the states of the step so far.
    """

    def __init__(self, step: str | None, what: str, state_history: Sequence[State] = ()) -> None:
        past = f" (so far: {' → '.join(state_history)})" if state_history else ""
        super().__init__(f"{step or 'the run'}: {what}{past}")
        self.step, self.what, self.state_history = step, what, tuple(state_history)
