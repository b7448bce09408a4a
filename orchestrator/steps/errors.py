"""Carry a failure out of whatever an attempt was doing."""

from orchestrator.events import Failure, FailureKind, GateResult


class AttemptError(Exception):
    """An attempt came to nothing. `gates` are the results of those gates that had looked at what was made."""

    def __init__(self, failure: Failure, gates: tuple[GateResult, ...] = ()) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.gates = gates


def unusable_input(message: str) -> AttemptError:
    """Return the error for an input that cannot be read: whoever tries again would find it as it is."""
    return AttemptError(Failure(FailureKind.RESOURCE, message, final=True))
