"""Models on demand: residency, memory admission, leases, cores.

pool        Pool: ask a model, load, unload, pin; one call for a batch
residency   loads and stops engines as the policy says
policy      what to load, to stop and to let run dry, from a picture of the pool; pure
admission   whether bytes fit, and who has to go for them; pure
footprint   what engines were measured to take
decoding    who is decoding, and with how many threads
cores       how the physical cores are shared, and whose turn it is; pure
placement   which node a replica runs on, and which replica a request goes to; pure
handle      EngineHandle: the port to engines, which are processes unless they are simulated
prefix_hashes  which prompt prefixes an engine has seen, as hashes
managed_model one model: its engines, who waits, how it failed
remotes     the models that other servers run
machine     cores, nodes and memory of this machine
topology    nodes and cores as data
status      the pool as people see it
errors      why a model cannot be had
"""

from orchestrator.pool.errors import (
    ModelBroken,
    ModelPinned,
    ModelRemote,
    ModelTooLarge,
    ModelUnavailable,
    PoolClosed,
    PoolError,
    UnknownModel,
)
from orchestrator.pool.handle import EngineHandle, StartEngine
from orchestrator.pool.machine import memory_budget, memory_limits, read_topology
from orchestrator.pool.policy import Rules
from orchestrator.pool.pool import Pool
from orchestrator.pool.status import ModelStatus, PoolSnapshot, ReplicaStatus
from orchestrator.pool.topology import Node, Topology

__all__ = [
    "EngineHandle",
    "ModelBroken",
    "ModelPinned",
    "ModelRemote",
    "ModelStatus",
    "ModelTooLarge",
    "ModelUnavailable",
    "Node",
    "Pool",
    "PoolClosed",
    "PoolError",
    "PoolSnapshot",
    "ReplicaStatus",
    "Rules",
    "StartEngine",
    "Topology",
    "UnknownModel",
    "memory_budget",
    "memory_limits",
    "read_topology",
]
