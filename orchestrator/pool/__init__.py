"""Models on demand: residency, memory admission, leases, cores."""

from orchestrator.pool.errors import (
    ModelBroken,
    ModelTooLarge,
    ModelUnavailable,
    PoolClosed,
    PoolError,
    UnknownModel,
)
from orchestrator.pool.machine import memory_budget, physical_cores
from orchestrator.pool.pool import Pool
from orchestrator.pool.status import ModelStatus, PoolSnapshot

__all__ = [
    "ModelBroken",
    "ModelStatus",
    "ModelTooLarge",
    "ModelUnavailable",
    "Pool",
    "PoolClosed",
    "PoolError",
    "PoolSnapshot",
    "UnknownModel",
    "memory_budget",
    "physical_cores",
]
