"""Models on demand: residency, memory admission, leases, cores.

pool           Pool: generates and embeds with models, also of other servers; loads, unloads and pins them
residency      loads and stops engines as the policy decides
policy         what to load, stop, drain and evict, given the state of the pool and its memory; pure
footprint      measured memory of engines
decoding       which engines are decoding, and how they share the physical cores
placement      the NUMA node of each replica, and which replica serves a request; pure
handle         EngineHandle: the port to engines, real or simulated
prefix_hashes  which prompt prefixes an engine has seen, as hashes
managed_model  the state of one model: replicas, waiting requests, failures
machine        reads the cores, nodes and memory of this machine
status         the state of the pool and the counters of its engines, for the API and the command line
errors         why a model cannot be used
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
from orchestrator.pool.placement import Node, Topology
from orchestrator.pool.policy import Rules
from orchestrator.pool.pool import Pool
from orchestrator.pool.status import ModelStatus, PoolSnapshot, ReplicaStatus

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
