"""Why a model cannot be had.

    PoolError
    ├── UnknownModel        the registry has no such model; asking again is useless
    ├── ModelUnavailable    its file is missing or broken, or it is cold; useless until the registry changes
    ├── ModelTooLarge       it can never fit the memory budget; useless until the registry changes
    ├── ModelRemote         another server runs it, and what was asked can only be done here
    ├── ModelPinned         it stays loaded until it is unpinned
    ├── ModelBroken         its engine has failed too often lately; it is tried again after a while
    └── PoolClosed          the pool is shutting down

A failed load raises the engine's own ModelLoadFailed, and an engine that dies its EngineDied.
"""

from orchestrator.errors import OrchestratorError


class PoolError(OrchestratorError):
    """A model cannot be had. `model` is its id in the registry."""

    def __init__(self, model: str, message: str) -> None:
        super().__init__(message)
        self.model = model


class UnknownModel(PoolError):
    """The registry has no model of this name."""


class ModelUnavailable(PoolError):
    """The registry says itself that the model cannot be used, and why."""


class ModelRemote(PoolError):
    """Another server runs the model: it is neither loaded nor unloaded here, nor are its prompts counted."""


class ModelTooLarge(PoolError):
    """The model needs `wanted` bytes, of a `budget` of which `pinned` are held by models that stay."""

    def __init__(self, model: str, message: str, *, wanted: int, budget: int, pinned: int) -> None:
        super().__init__(model, message)
        self.wanted = wanted
        self.budget = budget
        self.pinned = pinned


class ModelPinned(PoolError):
    """The model is HOT or pinned, and is not unloaded."""


class ModelBroken(PoolError):
    """The model's engine failed `failures` times in a row within a short time; `retry_seconds` until another try."""

    def __init__(self, model: str, message: str, *, failures: int, retry_seconds: float) -> None:
        super().__init__(model, message)
        self.failures = failures
        self.retry_seconds = retry_seconds


class PoolClosed(PoolError):
    """The pool stopped before the model could be used."""
