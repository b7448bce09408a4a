"""Translate what engines and the pool raise into failures of an attempt. None of them is the model's fault."""

from orchestrator.engine.errors import BadRequest, BrokenModel, EngineError, ModelLoadFailed, PromptTooLong
from orchestrator.events import Failure, FailureKind
from orchestrator.pool.errors import ModelBroken, ModelTooLarge, ModelUnavailable, PoolError, UnknownModel
from orchestrator.remote.errors import RemoteBusy

_PASSING = ("died", "hung", "memory")
"""Load failures that another try may not meet; all others are in the file or the settings."""


def failure_from(error: EngineError | PoolError) -> Failure:
    """Return the failure that the error amounts to, `final` where trying again is useless."""
    return Failure(_kind(error), str(error), final=_is_final(error))


def _kind(error: EngineError | PoolError) -> FailureKind:
    if isinstance(error, PromptTooLong | ModelTooLarge):
        return FailureKind.RESOURCE
    if isinstance(error, ModelBroken | RemoteBusy):
        return FailureKind.RESOURCE  # it is tried again after a while: the rule that waits
    if isinstance(error, ModelLoadFailed) and error.kind == "memory":
        return FailureKind.RESOURCE
    return FailureKind.INFRASTRUCTURE


def _is_final(error: EngineError | PoolError) -> bool:
    if isinstance(error, ModelLoadFailed):
        return error.kind not in _PASSING
    return isinstance(error, BadRequest | BrokenModel | UnknownModel | ModelUnavailable | ModelTooLarge)
