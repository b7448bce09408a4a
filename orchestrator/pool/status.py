"""Describe the pool for people to look at."""

from dataclasses import dataclass
from typing import Literal

State = Literal["unavailable", "unloaded", "waiting", "loading", "ready", "stopping", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One engine of a model, or the place for one. `node` is the NUMA node that it is bound to, None for all.

    `threads` is what it computes with, 0 while it waits for its turn; it and `pid` are None without a process.
    """

    number: int
    node: int | None
    state: Literal["absent", "loading", "ready", "stopping"]
    bytes: int
    requests: int
    active: int
    threads: int | None
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCounters:
    """What the engines of a model have counted since they were loaded, as EngineStats has it.

    Of `prompt_tokens` so many were `reused_tokens`, from a prefix that was computed before. Of `drafted` tokens
    `accepted` ones stayed, which saved `saved_seconds`; `speculation` says whether the first engine drafts, and why. It
    is None where the registry asks for none.
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
    """One model. `bytes` is what it holds of the budget, `threads` what it computes with, over all its `instances`.

    Of `requests`, which use it or wait for it, `waiting` have no engine yet and `active` generate. `pid` is the process
    of its first engine, None without one. A `pinned` model is neither evicted nor unloaded when idle. `reason` says why
    it is unavailable or how its engine failed last. `counters` are there where they were asked for.
    """

    model: str
    residency: str
    pinned: bool
    state: State
    bytes: int
    waiting: int
    requests: int
    active: int
    threads: int | None
    pid: int | None
    reason: str | None
    instances: tuple[ReplicaStatus, ...]
    counters: ModelCounters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """The pool at one moment: bytes that models may take and have taken, physical cores, and every model."""

    budget: int
    used: int
    cores: int
    models: tuple[ModelStatus, ...]
