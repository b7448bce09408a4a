"""The state of the pool and the counters of its engines, for the API and the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.engine.contract import NOT_SET_UP, EngineStats, StepTimes

ModelState = Literal["unavailable", "unloaded", "waiting", "loading", "ready", "stopping", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One replica of a model."""

    number: int
    node: int | None  # NUMA node it is bound to
    state: Literal["absent", "loading", "ready", "stopping"]
    bytes: int  # of the memory budget
    requests: int  # in use
    active: int  # generating
    threads: int | None  # 0 while it waits for its turn, None without a process
    pid: int | None
    machine: str = ""  # of a cluster; empty for this one


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """A server that runs a model, and what its answers have taken, in seconds; None before the first one."""

    name: str  # as in the reports of what it has computed
    url: str
    model: str  # its name on that server
    state: Literal["ready", "resting", "unavailable"]  # resting: it has failed, and has not answered since
    requests: int  # waiting or running
    active: int  # running
    slots: int  # that it gets at a time, at most
    at_once: int | None  # that it answers at a time, if it has kept more waiting
    first_seconds: float | None  # to the first token, on average
    token_seconds: float | None  # of a token, while it answers a single request of ours
    reason: str | None  # why it is not ready, or how it has failed last


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
    queued: int = 0  # sequences that wait inside an engine
    used_cells: int = 0  # held or reserved KV cells, in tokens
    cells: int = 0  # in tokens


@dataclass(slots=True, kw_only=True)
class RoleUse:
    """What one role has asked of a model since the pool was opened."""

    requests: int = 0  # waiting or running now
    answers: int = 0
    prompt_tokens: int = 0  # of answered prompts, with cached ones
    output_tokens: int = 0
    cached_tokens: int = 0  # of answered prompts
    prefill_seconds: float = 0.0  # from the end of the queue to the first tokens, summed
    decode_seconds: float = 0.0  # from the first to the last tokens, summed


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """One model; numbers are sums over its replicas."""

    model: str
    residency: str
    pinned: bool  # neither evicted nor unloaded when idle
    state: ModelState
    bytes: int  # of the memory budget
    waiting: int  # requests without an engine
    requests: int  # waiting or running
    active: int  # generating
    threads: int | None  # None without a process
    pid: int | None  # of the first engine
    reason: str | None  # why it is unavailable, or how its engine failed last
    instances: tuple[ReplicaStatus, ...]
    servers: Annotated[tuple[ServerStatus, ...], Field(exclude_if=lambda servers: not servers)] = ()
    waiting_batch: int = 0  # of those that wait, the ones of the class `batch`
    roles: Mapping[str, RoleUse] = field(default_factory=dict)  # by role; requests without a role have the empty name
    counters: ModelCounters | None = None  # set by `Pool.survey` only


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineStatus:
    """One machine that runs engines."""

    cores: int
    budget: int  # bytes that models may take
    used: int  # bytes that they have taken
    models: tuple[str, ...]  # those that are loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """The pool at one moment. Bytes that models may take and have taken, and cores, are those of this machine."""

    budget: int
    used: int
    cores: int
    models: tuple[ModelStatus, ...]
    # By name, with this one as "head"; empty without a cluster.
    machines: Annotated[Mapping[str, MachineStatus], Field(exclude_if=lambda machines: not machines)] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What one engine does, what its KV cache holds and what its steps take, by its latest report."""

    model: str
    number: int  # of the replica
    pid: int
    threads: int  # in use
    running: int  # sequences that decode
    prefilling: int  # sequences whose prompt is read
    queued: int  # sequences that wait inside the engine
    cells: int  # KV cells, in tokens
    used_cells: int  # held, or reserved for prompts and answers
    cells_by_role: Mapping[str, int]  # held by sequences of requests of a role
    finished_cells: int  # held by finished prompts alone, for others that start like them
    step_times: StepTimes | None  # None for an engine that does not generate


def sum_counters(counted: Sequence[EngineStats]) -> ModelCounters | None:
    if not counted:
        return None
    summed = [field.name for field in fields(ModelCounters) if field.name != "speculation"]
    sums = {name: sum(getattr(stats, name) for stats in counted) for name in summed}
    speculation = counted[0].speculation
    return ModelCounters(**sums, speculation=None if speculation == NOT_SET_UP else speculation)


def engine_state(replica: ReplicaStatus, model: str, stats: EngineStats) -> EngineState:
    assert replica.pid is not None, "it has answered"
    same = (
        "threads",
        "running",
        "prefilling",
        "queued",
        "cells",
        "used_cells",
        "cells_by_role",
        "finished_cells",
        "step_times",
    )
    facts = {name: getattr(stats, name) for name in same}
    return EngineState(model=model, number=replica.number, pid=replica.pid, **facts)
