"""The errors of the pool.

    PoolError
    ├── UnknownModel        the registry has no such model; a retry is useless
    ├── ModelUnavailable    its file is missing or broken, or it is cold; a retry is useless until the registry changes
    ├── ModelTooLarge       it cannot fit the memory budget; a retry is useless until the registry changes
    ├── ModelRemote         another server runs it, and the operation needs a model that is loaded here
    ├── ModelPinned         it stays loaded until it is unpinned
    ├── ModelBroken         its engine has failed too often lately; requests wait until it is tried again, within limits
    └── PoolClosed          the pool is shutting down

A failed load raises the engine's own ModelLoadFailed, and an engine that dies its EngineDied.
"""

from orchestrator.errors import OrchestratorError


class PoolError(OrchestratorError):
    """A model cannot be used. `model` is its id in the registry."""

    def __init__(self, model: str, message: str) -> None:
        super().__init__(message)
        self.model = model


class UnknownModel(PoolError):
    """The registry has no model of this name."""


class ModelUnavailable(PoolError):
    """The registry says why the model cannot be used; the message has the reason."""


class ModelRemote(PoolError):
    """Another server runs the model, so this operation is not possible here."""


class ModelTooLarge(PoolError):
    """The model needs `wanted` bytes of the `budget`, of which pinned models hold `pinned`."""

    def __init__(self, model: str, message: str, *, wanted: int, budget: int, pinned: int) -> None:
        super().__init__(model, message)
        self.wanted = wanted
        self.budget = budget
        self.pinned = pinned


class ModelPinned(PoolError):
    """The model is HOT or pinned, so it cannot be unloaded."""


class ModelBroken(PoolError):
    """The model's engine failed too often. The next try is in `retry_seconds`.

    If `lasting`, that try will probably fail too.
    """

    def __init__(self, model: str, message: str, *, retry_seconds: float, lasting: bool = False) -> None:
        super().__init__(model, message)
        self.retry_seconds = retry_seconds
        self.lasting = lasting


class PoolClosed(PoolError):
    """The pool stopped before the model could be used."""
