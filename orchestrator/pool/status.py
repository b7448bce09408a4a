"""The state of the pool, as the API and the command line show it."""

from dataclasses import dataclass
from typing import Literal

ModelState = Literal["unavailable", "unloaded", "waiting", "loading", "ready", "stopping", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One replica of a model."""

    number: int
    node: int | None
    """The NUMA node that it is bound to; None for no binding."""
    state: Literal["absent", "loading", "ready", "stopping"]
    bytes: int
    """What it holds of the memory budget."""
    requests: int
    """How many requests use it."""
    active: int
    """How many of them are generating."""
    threads: int | None
    """How many threads compute; 0 while it waits for its turn, None without a process."""
    pid: int | None
    """The id of its process, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCounters:
    """The sums of the counters of a model's engines since they were loaded: see EngineStats.

    `speculation` says whether the first engine drafts, and why; it is None if the registry asks for no speculation.
    """

    prompt_tokens: int
    reused_tokens: int
    output_tokens: int
    preempted: int
    drafted: int
    accepted: int
    saved_seconds: float
    speculation: str | None
    llama_seconds: float
    own_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """One model; numbers are sums over its replicas."""

    model: str
    residency: str
    pinned: bool
    """Whether it is neither evicted nor unloaded when idle."""
    state: ModelState
    bytes: int
    """What it holds of the memory budget."""
    waiting: int
    """How many requests wait for an engine."""
    requests: int
    """How many requests use it or wait for it."""
    active: int
    """How many requests are generating."""
    threads: int | None
    """How many threads compute; None without a process."""
    pid: int | None
    """The id of its first engine's process, or None."""
    reason: str | None
    """Why it is unavailable, or how its engine failed last; None if neither is so."""
    instances: tuple[ReplicaStatus, ...]
    counters: ModelCounters | None = None
    """Only `Pool.survey` gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """The pool at one moment: the bytes that models may take and have taken, physical cores, and every model."""

    budget: int
    used: int
    cores: int
    models: tuple[ModelStatus, ...]
